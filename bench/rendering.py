"""What it costs a page to draw a live run: processor time and memory of the renderer of a real JupyterLab in a real Chromium."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .browser import producer
from .common import Row, write_results
from .lab import environment_of, in_page, running_lab

__all__ = ["main"]

FLAG = "MLP1_mat_mul"
RATE = 5.0
AHEAD = 1000
MOST = {"heatmap, trend and statistics": 35, "heatmap and trend": 20, "both behind another tab": 5}
MOST_MIB = 600


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/rendering.{json,md}``; return the Markdown file."""
    parser = argparse.ArgumentParser(prog="python -m bench.rendering", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="how long to watch all views (%(default)s)"
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
    parser.add_argument("--profile", type=Path, help="beginning of the names of CPU profiles of the page")
    parser.add_argument("--screenshot", type=Path, help="picture of the page")
    parser.add_argument("--quick", action="store_true", help="20 seconds each: shows that it works")
    options = parser.parse_args(arguments)
    seconds = 20.0 if options.quick else 60.0
    settle = 10.0 if options.quick else 60 * options.minutes
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
            page = {
                "url": lab[0],
                "run": run_id,
                "flag": FLAG,
                "seconds": seconds,
                "settle": settle,
                "stepsBefore": options.steps_before,
                "profile": options.profile and str(options.profile),
                "screenshot": options.screenshot and str(options.screenshot),
            }
            seen = in_page(
                "rendering-page.mjs",
                page,
                environment | {"BENCH_TOKEN": lab[1]},
                4 * (seconds + settle) + options.steps_before + 240,
            )
    return _write(seen, options.quick, options.steps_before)


def _write(seen: Mapping[str, Mapping[str, Any]], quick: bool, before: int) -> Path:
    rows = []
    for what, found in seen.items():
        drawn = ", ".join(f"{rate:.1f}" for rate in found["drawn"])
        share, most = found["share"], MOST.get(what)
        rows.append(
            Row(
                f"processor time of the renderer, {what}",
                share,
                "% of a core",
                target="" if most is None else f"≤ {most} %",
                met=None if most is None else share <= most,
                note=f"new titles a second and view: {drawn}",
            )
        )
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
    how = (
        f"The demo model trains at {RATE:.0f} steps a second with {FLAG} of its 4 layers traced as Tile(96) and statistics of parameters and gradients logged every step, "
        f"{AHEAD} steps of it before the page is opened{hurried}. Chromium shows JupyterLab with the views side by side; processor time is that of the page's process as Chromium itself counts it, "
        "with its workers and the drawing of canvases, over a minute."
    )
    return write_results(
        "rendering", "What drawing a live run costs", rows, how=how, quick=quick, facts={"found": seen}
    )


if __name__ == "__main__":
    print(main().read_text(encoding="utf-8"))
