"""What timing costs a step: blocks of steps of the demo model alone, and of a job of 4 processes, in random order, in one run."""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens.client import open_run
from megalens.demo import GPT, Trainer
from megalens.tracer import Tracer
from megalens.tracer.timeline.rows import ROW_BYTES

from .common import Row, ratio, write_results
from .statistics import Way, measured, rows_of

__all__ = ["main"]

_MOST = {"phases": 0.5, "layers": 1.0}
_PROCESSES = 4
_TITLES = {"steps": "sums of each step", "phases": "phases every step", "layers": "layers every step", "operations": "operations every step"}  # fmt: skip


def _timed(granularity: str) -> Callable[[Trainer, Tracer], Any]:
    @contextmanager
    def begin(trainer: Trainer, tracer: Tracer) -> Iterator[Any]:
        tracer.configure(timeline=granularity)
        trainer.step()
        try:
            yield SimpleNamespace(spent_ns=0)
        finally:
            tracer.configure(timeline="off")
            trainer.step()

    return begin


WAYS = {
    "off": Way("", {}, begin=_timed("off")),
    **{
        name: Way(title, {}, most=_MOST.get(name), begin=_timed(name), every=1 if name in _MOST else 3)
        for name, title in _TITLES.items()
    },
}


def _job(rounds: int, steps: int) -> tuple[list[dict[str, float]], float]:
    """Train 4 replicas; return seconds a step by round and way, and the recording's bytes a rank and step of the finest."""
    ways = ("off", "phases", "layers")
    with tempfile.TemporaryDirectory() as folder:
        answers = multiprocessing.get_context("spawn").SimpleQueue()
        multiprocessing.spawn(_process, (folder, ways, rounds, steps, answers), nprocs=_PROCESSES, join=True)
        return answers.get()


def _process(rank: int, folder: str, ways: Sequence[str], rounds: int, steps: int, answers: Any) -> None:
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "runtime")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = distributed.FileStore(f"{folder}/store", _PROCESSES)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=_PROCESSES)
    model = GPT()
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 200, (4, 128))
    found: list[dict[str, float]] = []
    with megalens.trace(model, record=folder, linger=0.1) as tracer:

        def step() -> None:
            with tracer.step():
                replica(ids).logsumexp(-1).mean().backward()
                optimizer.step()
                optimizer.zero_grad()

        assert rank > 0 or tracer.connected(60)
        distributed.barrier()
        choose = random.Random(0)

        def block(way: str) -> float:
            if rank == 0:
                tracer.configure(timeline=way)
            # A change takes a few steps to be agreed on.
            for _ in range(4):
                step()
            began = time.perf_counter()
            for _ in range(steps):
                step()
            return (time.perf_counter() - began) / steps

        block("off")
        for _ in range(rounds):
            found.append({way: block(way) for way in choose.sample(ways, len(ways))})
        block("operations")
    distributed.destroy_process_group()
    if rank == 0:
        spans = open_run(tracer.folder).table("spans").to_pandas()
        fine = spans[spans.groupby("step")["rank"].transform("size") == spans.groupby("step").size().max()]
        answers.put((found, len(fine) / fine["step"].nunique() / _PROCESSES))


def _rows(found: Sequence[dict[str, float]], spans: float) -> list[Row]:
    rows = []
    for way in ("phases", "layers"):
        cost = ratio([each[way] for each in found], [each["off"] for each in found], middle=_middle)
        value, low, high = (100 * (each - 1) for each in (cost.value, cost.low, cost.high))
        undecided = low <= _MOST[way] < high
        rows.append(
            Row(
                f"job of {_PROCESSES} processes: {_TITLES[way]}", value, "% of a step", low, high,
                f"≤ {_MOST[way]} %", None if undecided else high <= _MOST[way],
                "**undecided**: the interval holds the target" if undecided else "",
            )
        )  # fmt: skip
    size = spans * ROW_BYTES
    rows.append(
        Row("a rank and step at operations, on the wire", size / 1e3, "kB", target="≤ 50", met=size <= 50e3, note=f"{spans:.0f} spans")
    )  # fmt: skip
    return rows


def _middle(values: Sequence[float]) -> float:
    cut = len(values) // 10
    kept = sorted(values)[cut : len(values) - cut]
    return sum(kept) / len(kept)


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/timeline_cost.{json,md}``; return the Markdown file."""
    parser = argparse.ArgumentParser(prog="python -m bench.timeline_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="blocks without timing (%(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="steps a block (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="9 rounds: shows that it works")
    options = parser.parse_args(arguments)
    rounds = 9 if options.quick else options.rounds
    rows = rows_of(measured(rounds, options.steps, WAYS), WAYS)
    rows += _rows(*_job(rounds, 2 * options.steps))
    how = (
        f"{rounds} rounds; in each, {options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way, in random order, after two steps that are not measured; sums and operations in every third round. "
        f"Then {_PROCESSES} processes with `DistributedDataParallel` over gloo on the same cores, one thread each, {2 * options.steps} steps a block. A hub records it all. "
        "Time of a block over that of the block without timing in the same round; mean without the smallest and largest tenth; 95 % bootstrap interval over rounds."
    )
    return write_results("timeline_cost", "What timing costs a step", rows, how=how, quick=options.quick)


if __name__ == "__main__":
    print(main().read_text(encoding="utf-8"))
