"""What it costs a page to draw a live run, and how long its first pictures take: processor time and memory of the renderer of a real JupyterLab in a real Chromium."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from megalens.runs import connect

from .browser import producer
from .common import Row, write_results
from .lab import environment_of, in_page, running_lab

__all__ = ["main"]

FLAG = "MLP1_mat_mul"
RATE = 5.0
AHEAD = 1000
# One a round: what was traced in a round before is in the recording, and drawn.
UNTRACED = ("HiddenStates", "QKV_mat_mul", "MLP2_mat_mul")
MOST = {
    "heatmap, trend and statistics": 25,
    "heatmap and trend": 20,
    "both behind another tab": 5,
    "the Overview": 15,
}
FIRST = {
    "overview": ("command to the first picture of the Overview", 1.0),
    "apply": ("click on Trace … to the first picture of what is traced", 0.8),
}
MOST_MIB = 600
# Until then the page's stores, which are bounded, fill.
FILLED = 5
MOST_GROWTH = 10.0


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/rendering.json``; return the page of all results."""
    parser = argparse.ArgumentParser(prog="python -m bench.rendering", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="how long the heap is watched (%(default)s)"
    )
    parser.add_argument(
        "--steps-before",
        type=int,
        default=0,
        help="let the run come to so many steps first, eight times as fast, with the page open",
    )
    parser.add_argument(
        "--extension", type=Path, help="labextensions folder of another build than the installed one"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=len(UNTRACED),
        choices=range(len(UNTRACED) + 1),
        help="first pictures, each in a browser of its own (%(default)s)",
    )
    parser.add_argument("--profile", type=Path, help="beginning of the names of CPU profiles of the page")
    parser.add_argument("--screenshot", type=Path, help="picture of the page")
    parser.add_argument("--quick", action="store_true", help="20 seconds each: shows that it works")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    seconds = 20.0 if options.quick else 60.0
    settle = 10.0 if options.quick else 30.0
    watched = 10.0 if options.quick else 60 * options.minutes
    with tempfile.TemporaryDirectory() as home:
        environment = environment_of(Path(home))
        os.environ["MEGALENS_RUNTIME_DIR"] = environment["MEGALENS_RUNTIME_DIR"]
        with (
            producer(
                environment,
                RATE,
                (FLAG,),
                *("--statistics", "--ahead", str(AHEAD), "--hurry", str(options.steps_before)),
            ) as run_id,
            running_lab(Path(home), environment, options.extension) as lab,
        ):
            secret = environment | {"BENCH_TOKEN": lab[1]}
            first = _first(lab[0], run_id, secret, 1 if options.quick else options.rounds, options.profile)
            page = {
                "url": lab[0],
                "run": run_id,
                "flag": FLAG,
                "seconds": seconds,
                "stepsBefore": options.steps_before,
                "profile": options.profile and str(options.profile),
                "screenshot": options.screenshot and str(options.screenshot),
            }

            def seen_in_page(watch_heap: bool, rest: float) -> dict[str, Any]:
                limit = 5 * (seconds + rest) + options.steps_before + 900
                return in_page(
                    "rendering-page.mjs", page | {"watchHeap": watch_heap, "settle": rest}, secret, limit
                )

            seen, heaps = seen_in_page(False, settle), seen_in_page(True, watched)["heaps"]
    return _write(seen, heaps, first, load, options.quick, options.steps_before)


def _first(
    url: str, run_id: str, environment: Mapping[str, str], rounds: int, profile: Path | None
) -> list[Mapping[str, Mapping[str, float]]]:
    """Take the times of first pictures, in a browser that knows nothing of the page yet."""
    seen: list[Mapping[str, Mapping[str, float]]] = []
    with connect(run_id) as run:
        for flag in UNTRACED[:rounds]:
            page = {"url": url, "run": run_id, "flag": flag, "profile": profile and str(profile)}
            seen.append(in_page("first-picture-page.mjs", page, environment, 900))
            run.configure({flag: None})
    return seen


def _write(
    seen: Mapping[str, Mapping[str, Any]],
    heaps: Sequence[float],
    first: Sequence[Mapping[str, Mapping[str, float]]],
    load: float,
    quick: bool,
    before: int,
) -> Path:
    rows = []
    for what, (name, most_seconds) in FIRST.items() if first else ():
        took = [each[what]["took"] / 1000 for each in first]
        thread = statistics.median([each[what]["thread"] for each in first])
        middle = statistics.median(took)
        rows.append(
            Row(
                f"{name}, median of {len(took)}",
                middle,
                "s",
                target=f"≤ {most_seconds:g}",
                met=middle <= most_seconds,
                note=f"{min(took):.2f} to {max(took):.2f} s; of these the page's main thread computes {thread:.0f} ms",
            )
        )
    for what, found in seen.items():
        drawn = ", ".join(f"{rate:.1f}" for rate in found["drawn"])
        share, most = found["share"], MOST.get(what)
        # The Overview has many titles, and the views have gone when it is there.
        counts = what in MOST and what != "the Overview"
        rows.append(
            Row(
                f"processor time of the renderer, {what}",
                share,
                "% of a core",
                target="" if most is None else f"≤ {most} %",
                met=None if most is None else share <= most,
                note=f"new titles a second and view: {drawn}" if counts else "",
            )
        )
    rows += _heap(heaps)
    resident = next(iter(seen.values()))["resident"]
    rows.append(
        Row(
            "resident memory of the renderer",
            resident,
            "MiB",
            target=f"≤ {MOST_MIB}",
            met=resident <= MOST_MIB,
        )
    )
    hurried = f", and then, with the page open, up to step {before} eight times as fast" if before else ""
    names = ", ".join(UNTRACED)
    how = (
        f"The demo model trains at {RATE:.0f} steps a second with {FLAG} of its 4 layers traced as Tile(96) and statistics of parameters and gradients logged every step, "
        f"{AHEAD} steps of it before the page is opened{hurried}. Chromium shows JupyterLab with the views side by side; processor time is that of the page's process as Chromium itself counts it, "
        "with its workers and the drawing of canvases, over a minute; the heap is watched in a browser of its own, since V8 collects many times as often after a collection that is forced. First pictures are timed in a browser of their own, in which nothing was opened yet, to "
        f"the animation frame after something is drawn; {names}, one in each, are not traced before, and the page has been at rest for six seconds. Before it began, {load:.1f} processes on average wanted a processor."
    )
    return write_results(
        "rendering",
        "What drawing a live run costs",
        rows,
        how=how,
        quick=quick,
        facts={"found": seen, "heaps": heaps},
    )


def _heap(heaps: Sequence[float]) -> list[Row]:
    """Return what the heap grows by in an hour: the slope of least squares through its minutes, from when the stores are full."""
    full = heaps[FILLED - 1 :]
    if len(full) < FILLED:
        return []
    slope = 60 * statistics.linear_regression(range(len(full)), full).slope
    return [
        Row(
            f"growth of the heap in an hour, over minutes {FILLED} to {len(heaps)}",
            slope,
            "MiB",
            target=f"≤ {MOST_GROWTH:g}",
            met=slope <= MOST_GROWTH,
            note=f"collected: {full[0]:.1f} → {full[-1]:.1f} MiB, at most {max(full):.1f}",
        )
    ]


if __name__ == "__main__":
    print(main().read_text(encoding="utf-8"))
