"""A page that shows a live run: how long a tensor takes to its pixel, what drawing costs, and how long first pictures take. A training, a hub, a JupyterLab and a Chromium, all real, on one machine."""

from __future__ import annotations

import argparse
import statistics
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from megalens.runs import Run, connect

from .common import percentile
from .lab import Lab, paced_training, running_lab
from .recordings import FLAGS
from .report import Measured, Row, benchmark, judged

__all__ = ["browser", "rendering"]

RATE = 20.0
WARM_UP = 60.0


@benchmark(
    "From tensor to pixel",
    "20 seconds",
    minutes=(10.0, 1 / 3, "how long to watch"),
    rate=(RATE, "steps a second"),
    screenshot=(Path, "picture of the page at the end"),
)
def browser(options: argparse.Namespace) -> Measured:
    """Tensor produced → pixel drawn: a training, a hub, a JupyterLab and a Chromium, all real, on one machine."""
    seconds, warm_up = 60 * options.minutes, 5.0 if options.quick else WARM_UP
    produced: dict[int, float] = {}
    with (
        paced_training(options.rate, FLAGS) as run_id,
        connect(run_id) as run,
        running_lab(options.folder) as lab,
    ):
        gathering = threading.Event()
        thread = threading.Thread(target=_gather, args=(run, produced, gathering), daemon=True)
        thread.start()
        page = {"run": run_id, "flags": FLAGS, "screenshot": options.screenshot}
        limit = seconds + warm_up + 240
        seen = lab.look("browser", limit, seconds=seconds, warmUp=warm_up, **page)
        gathering.set()
        thread.join(10)
        _take(run, produced)
    return _delays(seen, produced, options.rate)


def _delays(seen: Mapping[str, Any], produced: Mapping[int, float], rate: float) -> Measured:
    timed = [(at, at - 1e3 * produced[step]) for _, step, at in seen["drawn"] if step in produced]
    delays = [delay for _, delay in timed]
    if len(delays) < 20:
        raise RuntimeError(
            f"Expected at least 20 drawings, found {len(delays)}. Does the page show the views?"
        )
    # Between forced collections the heap also holds what the next one would take away.
    collected = [heap for heap in seen["heaps"] if heap["collected"]]
    first, last = collected[0], collected[-1]
    growth = 100 * (last["usedSize"] / first["usedSize"] - 1)
    buffers = 100 * (last["backingStorageSize"] / max(1, first["backingStorageSize"]) - 1)
    views = len({view for view, _, _ in seen["drawn"]})
    p50, p99 = percentile(delays, 50), percentile(delays, 99)
    steps = [step for step in produced if step >= min(step for _, step, _ in seen["drawn"])]
    real_rate = (len(steps) - 1) / (produced[max(steps)] - produced[min(steps)])
    what = f"heap growth in {seen['seconds'] / 60:.1f} minutes"

    def moved(size: str) -> str:
        return f"{first[size] / 2**20:.0f} → {last[size] / 2**20:.0f} MiB"

    rows = [
        judged("tensor produced → pixel drawn, p50", p50, "ms", "≤ 100 ms"),
        judged("tensor produced → pixel drawn, p99", p99, "ms", "≤ 250 ms"),
        Row(
            "drawings a second and view",
            len(delays) / seen["seconds"] / views,
            "1/s",
            note="a view draws at most 10 times a second",
        ),
        Row("steps a second that the training made", real_rate, "1/s", target=f"{rate:.0f}/s"),
        judged(what, growth, "%", "≤ 5 %", f"{moved('usedSize')} after collection"),
        Row(
            "growth of array buffers in the same time",
            buffers,
            "%",
            note=f"{moved('backingStorageSize')}: the store's rows, bounded",
        ),
    ]
    how = (
        f"The demo model steps {rate:.0f} times a second with {', '.join(FLAGS)} of its 4 layers traced as Tile(96). Chromium shows JupyterLab with "
        f"{views} live heatmaps of all layers side by side. A delay runs from the end of the forward pass, by the training's clock, to the first animation "
        "frame after the view finished drawing that step, by the page's; both are this machine's. Training, hub, Jupyter, browser and benchmark share its cores. "
        "While it is watched the page has one bare debugging session with nothing enabled in it. The heap is measured after a forced collection, first when the "
        "page has followed for a minute: the 32 MiB in which it keeps tensors are full after a few seconds."
    )
    return Measured(rows, how, {"heaps": seen["heaps"], "p99_by_minute": _by_minute(timed)})


def _by_minute(timed: Sequence[tuple[float, float]]) -> list[float]:
    """Return the p99 of each minute: one bad moment of the machine looks different from a slow page."""
    minutes: dict[int, list[float]] = {}
    for at, delay in timed:
        minutes.setdefault(int((at - timed[0][0]) // 60_000), []).append(delay)
    return [round(percentile(minutes[minute], 99), 1) for minute in sorted(minutes)]


def _gather(run: Run, produced: dict[int, float], ended: threading.Event) -> None:
    while not ended.wait(5):
        _take(run, produced)


def _take(run: Run, produced: dict[int, float]) -> None:
    table = run.scalars("produced", steps=(max(produced, default=0) + 1, None))
    produced.update(zip(table.column("step").to_pylist(), table.column("value").to_pylist(), strict=True))


FLAG = "MLP1_mat_mul"
SLOW_RATE = 5.0
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


@benchmark(
    "What drawing a live run costs",
    "20 seconds each",
    minutes=(20.0, 1 / 6, "how long the heap is watched"),
    steps_before=(0, "let the run come to so many steps first, eight times as fast, with the page open"),
    extension=(Path, "labextensions folder of another build than the installed one"),
    rounds=(len(UNTRACED), 1, f"first pictures, each in a browser of its own, up to {len(UNTRACED)}"),
    profile=(Path, "beginning of the names of CPU profiles of the page"),
    screenshot=(Path, "picture of the page"),
)
def rendering(options: argparse.Namespace) -> Measured:
    """What it costs a page to draw a live run, and how long its first pictures take: processor time and memory of the renderer of a real JupyterLab in a real Chromium."""
    seconds, settle = (20.0, 10.0) if options.quick else (60.0, 30.0)
    training = {"ahead": AHEAD, "hurry": options.steps_before, "statistics": True}
    with (
        paced_training(SLOW_RATE, (FLAG,), **training) as run_id,
        running_lab(options.folder, options.extension) as lab,
    ):
        first = _first(lab, run_id, options.rounds, options.profile)
        page = {
            "run": run_id,
            "flag": FLAG,
            "seconds": seconds,
            "stepsBefore": options.steps_before,
            "profile": options.profile,
            "screenshot": options.screenshot,
        }
        seen, other = (
            lab.look(
                "rendering-page.mjs",
                5 * (seconds + rest) + options.steps_before + 900,
                **page,
                watchHeap=watch_heap,
                settle=rest,
            )
            for watch_heap, rest in ((False, settle), (True, 60 * options.minutes))
        )
    rows = [*_first_rows(first), *_drawing(seen, other["heaps"])]
    hurried = (
        f", and then, with the page open, up to step {options.steps_before} eight times as fast"
        if options.steps_before
        else ""
    )
    names = ", ".join(UNTRACED)
    how = (
        f"The demo model trains at {SLOW_RATE:.0f} steps a second with {FLAG} of its 4 layers traced as Tile(96) and statistics of parameters and gradients logged every step, "
        f"{AHEAD} steps of it before the page is opened{hurried}. Chromium shows JupyterLab with the views side by side; processor time is that of the page's process as Chromium itself counts it, "
        "with its workers and the drawing of canvases, over a minute; the heap is watched in a browser of its own, since V8 collects many times as often after a collection that is forced. First pictures are timed in a browser of their own, in which nothing was opened yet, to "
        f"the animation frame after something is drawn; {names}, one in each, are not traced before, and the page has been at rest for six seconds."
    )
    return Measured(rows, how, {"found": seen, "heaps": other["heaps"]})


def _first(lab: Lab, run_id: str, rounds: int, profile: Path | None) -> list[Mapping[str, Any]]:
    """Take the times of first pictures, in a browser that knows nothing of the page yet."""
    seen: list[Mapping[str, Any]] = []
    with connect(run_id) as run:
        for flag in UNTRACED[:rounds]:
            seen.append(lab.look("first-picture-page.mjs", 900, run=run_id, flag=flag, profile=profile))
            run.configure({flag: None})
    return seen


def _first_rows(first: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    for what, (name, most_seconds) in FIRST.items() if first else ():
        took = [each[what]["took"] / 1000 for each in first]
        thread = statistics.median([each[what]["thread"] for each in first])
        note = (
            f"{min(took):.2f} to {max(took):.2f} s; of these the page's main thread computes {thread:.0f} ms"
        )
        title = f"{name}, median of {len(took)}"
        yield judged(title, statistics.median(took), "s", f"≤ {most_seconds:g}", note)


def _drawing(seen: Mapping[str, Mapping[str, Any]], heaps: Sequence[float]) -> Iterator[Row]:
    for what, found in seen.items():
        drawn = ", ".join(f"{rate:.1f}" for rate in found["drawn"])
        share, most = found["share"], MOST.get(what)
        # The Overview has many titles, and the views have gone when it is there.
        counts = what in MOST and what != "the Overview"
        yield judged(
            f"processor time of the renderer, {what}",
            share,
            "% of a core",
            "" if most is None else f"≤ {most} %",
            f"new titles a second and view: {drawn}" if counts else "",
        )
    yield from _heap(heaps)
    resident = next(iter(seen.values()))["resident"]
    yield judged("resident memory of the renderer", resident, "MiB", f"≤ {MOST_MIB}")


def _heap(heaps: Sequence[float]) -> list[Row]:
    """Return what the heap grows by in an hour: the slope of least squares through its minutes, from when the stores are full."""
    full = heaps[FILLED - 1 :]
    if len(full) < FILLED:
        return []
    slope = 60 * statistics.linear_regression(range(len(full)), full).slope
    what = f"growth of the heap in an hour, over minutes {FILLED} to {len(heaps)}"
    note = f"collected: {full[0]:.1f} → {full[-1]:.1f} MiB, at most {max(full):.1f}"
    return [judged(what, slope, "MiB", f"≤ {MOST_GROWTH:g}", note)]
