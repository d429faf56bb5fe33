"""Tensor produced → pixel drawn: a training, a hub, a JupyterLab and a Chromium, all real, on one machine."""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from megalens.runs import Run, connect

from .common import Row, percentile, write_results
from .lab import environment_of, in_page, running_lab, running_training

__all__ = ["main", "producer"]

FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")
RATE = 20.0
WARM_UP = 60.0


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/browser.{json,md}``; return the Markdown file."""
    parser = argparse.ArgumentParser(prog="python -m bench.browser", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to watch (%(default)s)")
    parser.add_argument("--rate", type=float, default=RATE, help="steps a second (%(default)s)")
    parser.add_argument("--screenshot", type=Path, help="picture of the page at the end")
    parser.add_argument("--quick", action="store_true", help="20 seconds: shows that it works")
    options = parser.parse_args(arguments)
    seconds, warm_up = (20.0, 5.0) if options.quick else (60 * options.minutes, WARM_UP)
    produced: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as home:
        environment = environment_of(Path(home))
        os.environ["MEGALENS_RUNTIME_DIR"] = environment["MEGALENS_RUNTIME_DIR"]
        with (
            producer(environment, options.rate, FLAGS) as run_id,
            connect(run_id) as run,
            running_lab(Path(home), environment) as lab,
        ):
            gathering = threading.Event()
            thread = threading.Thread(target=_gather, args=(run, produced, gathering), daemon=True)
            thread.start()
            page = {
                "url": lab[0],
                "run": run_id,
                "flags": FLAGS,
                "seconds": seconds,
                "warmUp": warm_up,
                "screenshot": None if options.screenshot is None else str(options.screenshot),
            }
            seen = in_page(
                "browser-page.mjs", page, environment | {"BENCH_TOKEN": lab[1]}, seconds + warm_up + 240
            )
            gathering.set()
            thread.join(10)
            _take(run, produced)
    return _write(seen, produced, options.rate, options.quick)


def _write(seen: Mapping[str, Any], produced: Mapping[int, float], rate: float, quick: bool) -> Path:
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
    rows = [
        Row("tensor produced → pixel drawn, p50", p50, "ms", target="≤ 100 ms", met=p50 <= 100),
        Row("tensor produced → pixel drawn, p99", p99, "ms", target="≤ 250 ms", met=p99 <= 250),
        Row(
            "drawings a second and view",
            len(delays) / seen["seconds"] / views,
            "1/s",
            note="a view draws at most 10 times a second",
        ),
        Row("steps a second that the training made", real_rate, "1/s", target=f"{rate:.0f}/s"),
        Row(
            f"heap growth in {seen['seconds'] / 60:.1f} minutes",
            growth,
            "%",
            target="≤ 5 %",
            met=growth <= 5,
            note=f"{first['usedSize'] / 2**20:.0f} → {last['usedSize'] / 2**20:.0f} MiB after collection",
        ),
        Row(
            "growth of array buffers in the same time",
            buffers,
            "%",
            note=f"{first['backingStorageSize'] / 2**20:.0f} → {last['backingStorageSize'] / 2**20:.0f} MiB: the store's rows, bounded",
        ),
    ]
    how = (
        f"The demo model steps {rate:.0f} times a second with {', '.join(FLAGS)} of its 4 layers traced as Tile(96). Chromium shows JupyterLab with "
        f"{views} live heatmaps of all layers side by side. A delay runs from the end of the forward pass, by the training's clock, to the first animation "
        "frame after the view finished drawing that step, by the page's; both are this machine's. Training, hub, Jupyter, browser and benchmark share its cores. "
        "While it is watched the page has one bare debugging session with nothing enabled in it. The heap is measured after a forced collection, first when the "
        "page has followed for a minute: the 32 MiB in which it keeps tensors are full after a few seconds."
    )
    facts = {"heaps": seen["heaps"], "p99_by_minute": _by_minute(timed)}
    return write_results("browser", "From tensor to pixel", rows, how=how, quick=quick, facts=facts)


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


def producer(
    environment: Mapping[str, str], rate: float, flags: Sequence[str], *further: str
) -> AbstractContextManager[str]:
    """Run a paced training with further arguments of ``browser_producer``; give its run's id."""
    paced = ("--rate", str(rate), "--flags", ",".join(flags))
    return running_training(environment, "bench.browser_producer", *paced, *further)


if __name__ == "__main__":
    print(main().read_text(encoding="utf-8"))
