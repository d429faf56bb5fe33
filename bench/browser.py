"""Tensor produced → pixel drawn: a training, a hub, a JupyterLab and a Chromium, all real, on one machine."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from megalens.runs import Run, connect

from .common import Row, asked, judged, percentile, report
from .lab import environment_of, in_page, running_lab, running_training, until_closed

__all__ = ["main", "producer"]

FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")
RATE = 20.0
WARM_UP = 60.0


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/browser.json``; return the page of all results."""
    options = asked(
        __doc__,
        arguments,
        "20 seconds",
        minutes=(10.0, "how long to watch"),
        rate=(RATE, "steps a second"),
        screenshot=(Path, "picture of the page at the end"),
    )
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
            seen = in_page("browser", page, environment | {"BENCH_TOKEN": lab[1]}, seconds + warm_up + 240)
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
        judged("tensor produced → pixel drawn, p50", p50, "ms", "≤ 100 ms"),
        judged("tensor produced → pixel drawn, p99", p99, "ms", "≤ 250 ms"),
        Row(
            "drawings a second and view",
            len(delays) / seen["seconds"] / views,
            "1/s",
            note="a view draws at most 10 times a second",
        ),
        Row("steps a second that the training made", real_rate, "1/s", target=f"{rate:.0f}/s"),
        judged(
            f"heap growth in {seen['seconds'] / 60:.1f} minutes",
            growth,
            "%",
            "≤ 5 %",
            f"{first['usedSize'] / 2**20:.0f} → {last['usedSize'] / 2**20:.0f} MiB after collection",
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
    return report("browser", "From tensor to pixel", rows, how=how, quick=quick, facts=facts)


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
    """Run a paced training with further arguments of ``--produce``; give its run's id."""
    paced = ("--rate", str(rate), "--flags", ",".join(flags))
    return running_training(environment, "bench.browser", "--produce", *paced, *further)


def _produce(arguments: Sequence[str]) -> None:
    """Train the demo model, paced, until standard input closes; each step logs when its tensors were made."""
    import torch

    import megalens
    from megalens import Tile
    from megalens.demo import GPT

    options = asked(
        __doc__,
        arguments,
        "nothing",
        rate=(float, "steps a second"),
        flags=(str, "flags, separated by commas"),
        ahead=(0, "first steps, which are not paced"),
        hurry=(0, "steps before the pace, made eight times as fast after those"),
        statistics=(bool, "train, and log statistics of parameters and gradients"),
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT()
    ended = until_closed()
    flags = {flag: Tile(96) for flag in options.flags.split(",")}
    with megalens.trace(model, name="bench", flags=flags, linger=0) as tracer:
        if not tracer.connected(30):
            raise TimeoutError("The tracer did not reach its hub within 30 s.")
        if options.statistics:
            megalens.log_statistics(model, tracer=tracer, param=1, grad=1)
        steps = 0
        due = time.monotonic()
        while not ended.is_set():
            if steps == options.ahead:
                print(tracer.run_id, flush=True)
            with tracer.step():
                # Other text each time: with the same one neither a colour nor a scale would ever change.
                out = model(torch.randint(256, (1, model.config.sequence)))
                if options.statistics:
                    model.zero_grad()
                    loss = out.square().mean()
                    loss.backward()
                    tracer.log(loss=loss)
                tracer.log(produced=time.time(), unit="s")
            steps += 1
            if steps <= options.ahead:
                continue
            rate = options.rate * (8 if steps <= options.hurry else 1)
            due = max(due + 1 / rate, time.monotonic() - 1)
            ended.wait(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--produce"]:
        _produce(sys.argv[2:])
    else:
        main()
