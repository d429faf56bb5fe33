"""Jobs that are timed: what that costs a step, whether real jobs are judged right, and how fast traces of PyTorch's profiler are opened."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import megalens
from megalens.demo import GPT, GPTConfig
from megalens.instruments.timeline import analyse
from megalens.instruments.timeline.culprits import Verdict
from megalens.protocol import STREAMS
from megalens.runs import open_run
from megalens.tracer import Tracer

from .children import joined
from .common import Tossed, ratio, timed, tossed
from .report import Measured, Row, benchmark, divided, judged, share
from .statistics import cores_left, seconds_aside, tossed_row, training

__all__ = ["timeline_cost", "timeline_real", "trace_reading"]

_PROCESSES = 4


@contextmanager
def _replica(
    rank: int, folder: str, config: GPTConfig, optimized: Any = torch.optim.AdamW, **options: Any
) -> Iterator[tuple[GPT, Tracer, Callable[[Any], None]]]:
    """Be one of 4 replicas of a model; give it, its tracer, and what takes a step on a batch."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "runtime")
    joined(rank, _PROCESSES, f"{folder}/store")
    model = GPT(config)
    replica = DistributedDataParallel(model)
    optimizer = optimized(model.parameters())

    def learn(ids: torch.Tensor) -> None:
        replica(ids).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with megalens.trace(model, record=folder, linger=0.1, **options) as tracer:
        assert rank > 0 or tracer.connected(60)
        distributed.barrier()
        yield model, tracer, learn
    distributed.destroy_process_group()


_MORE = 4
"""Times as many steps of the job: processes that wait for each other vary more."""
_MOST = {"phases": 0.5, "layers": 1.0}
_TITLES = {"steps": "sums of each step", "phases": "phases every step", "layers": "layers every step", "operations": "operations every step"}  # fmt: skip


def _cost(tracer: Tracer, step: Callable[[], object], steps: int) -> Tossed:
    """Return what timing adds to a step, by the settings in force."""
    instrument: Any = tracer.instrument("timeline")
    begins, timed = instrument.step_begins, [True]
    instrument.step_begins = lambda number, held: begins(number, held or not timed[0])

    def train(pays: bool) -> None:
        timed[0] = pays
        step()

    found = tossed(train, lambda: sum(seconds_aside(tracer)), steps)
    instrument.step_begins = begins
    return found


def _alone(steps: int) -> Iterator[Row]:
    """Measure one process that trains on all cores, and on all but one."""
    for left in cores_left():
        with training("bench-timeline") as (trainer, tracer):
            for way, title in _TITLES.items():
                tracer.configure(timeline=way)
                trainer.step()
                found = _cost(tracer, trainer.step, steps)
                where = "a core free" if left else "no core free"
                # With a core to spare what others do is not taken from the training.
                aside = 0.0 if left else found.processor
                yield tossed_row(f"{where}: {title}", found, _MOST.get(way), aside)


def _job(steps: int, folder: Path) -> tuple[list[Row], float]:
    """Train 4 replicas; return the lines of the table, and how many spans a rank has in a step at the finest."""
    answers = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(_costing, (str(folder), steps, answers), nprocs=_PROCESSES, join=True)
    told = [answers.get() for _ in range(_PROCESSES)]
    rows = []
    for way, most in _MOST.items():
        of_ranks = [found[way] for found, _ in told]
        # All wait for the slowest in each step, so that any rank's clock serves; more processes than cores train, so that each second of a processor is taken from them, on all cores alike.
        aside = sum(each.processor for each in of_ranks) / (os.cpu_count() or 1)
        rows.append(tossed_row(f"job of {_PROCESSES} processes: {_TITLES[way]}", of_ranks[0], most, aside))
    return rows, max(spans for _, spans in told)


def _costing(rank: int, folder: str, steps: int, answers: Any) -> None:
    found: dict[str, Tossed] = {}
    with _replica(rank, folder, GPTConfig()) as (_, tracer, learn):
        ids = torch.randint(0, 200, (4, 128))

        def step() -> None:
            with tracer.step():
                learn(ids)

        for way in (*_MOST, "operations"):
            if rank == 0:
                tracer.configure(timeline=way)
            # It takes a few steps to be agreed on.
            timed(step, 4)
            if way in _MOST:
                found[way] = _cost(tracer, step, steps)
        timed(step, 4)
    spans = 0.0
    if rank == 0:
        of_steps = open_run(tracer.folder).table("spans").to_pandas().groupby("step").size()
        spans = float(of_steps.max()) / _PROCESSES
    answers.put((found, spans))


@benchmark("What timing costs a step", "16 steps", steps=(400, 16, "steps of each way"))
def timeline_cost(options: argparse.Namespace) -> Measured:
    """What timing costs a step: steps of the demo model alone, and of a job of 4 processes, that are timed or not by chance, in one run."""
    steps = options.steps
    job, spans = _job(_MORE * steps, options.folder)
    size = spans * STREAMS["spans"].policy.row_bytes / 1e3
    wire = judged("a rank and step at operations, on the wire", size, "kB", "≤ 50", f"{spans:.0f} spans")
    how = (
        f"{steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way, with no core free and with one. Then {_PROCESSES} processes with `DistributedDataParallel` over gloo on the same cores, one thread each, 4 sequences a step, {_MORE * steps} steps in every way. "
        "Hub and tracer are there, and a hub records it all; whether a step is timed is decided by chance for each, on all ranks alike, and what timing adds to it and to the step after it is estimated in stretches of 8 steps (bench/common.py), with a 95 % bootstrap interval over stretches. "
        "Producers and hub work up to a second later, so that their processor time is added: in full with no core free, and in the job as far as it takes all cores alike. What hooks cost in a step that is not timed, where they look at a flag, is not in it."
    )
    return Measured([*_alone(steps), *job, wire], how, {"steps": steps})


_STEPS = 40
_WAYS = ("none", "device", "data", "host")
_SLOWED_S = {"device": 0.015, "data": 0.02, "host": 0.02}
_NAMES = {
    "device": "work added to a rank's passes",
    "data": "a rank waits for its batches",
    "host": "a rank pauses between passes",
}


class _Batches(torch.utils.data.Dataset[Any]):
    """Gives the same batch, after a while."""

    def __init__(self, waits: float) -> None:
        self._waits, self._ids = waits, torch.randint(0, 32, (4, 32))

    def __len__(self) -> int:
        return _STEPS

    def __getitem__(self, at: int) -> torch.Tensor:
        time.sleep(self._waits)
        return self._ids


def _slowed(rank: int, folder: str, way: str, slow: int) -> None:
    waits = {way: _SLOWED_S[way]} if rank == slow else {}
    config = GPTConfig(vocabulary=32, layers=2, hidden=64, heads=2, sequence=32)
    sgd = partial(torch.optim.SGD, lr=0.1)
    with _replica(rank, folder, config, sgd, timeline="phases", name="real") as (model, tracer, learn):
        model.blocks[0].register_forward_hook(lambda *_: time.sleep(waits.get("device", 0)))
        for batch in torch.utils.data.DataLoader(_Batches(waits.get("data", 0)), batch_size=None):
            with tracer.step():
                time.sleep(waits.get("host", 0))
                learn(batch)


def _judged(way: str, slow: int) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_slowed, (folder, way, slow), nprocs=_PROCESSES, join=True)
        (recording,) = Path(folder).glob("*/run.json")
        with open_run(recording.parent) as run:
            return analyse(run).verdict()


@benchmark("Verdicts of real jobs", "3 jobs", jobs=(30, 3, "of each kind"))
def timeline_real(options: argparse.Namespace) -> Measured:
    """Judge real jobs of 4 processes on this machine: some with a rank that is slowed, some with none."""
    choose = random.Random(0)
    plan = [("none", -1)] * options.jobs
    plan += [(_WAYS[1 + at % 3], choose.randrange(_PROCESSES)) for at in range(options.jobs)]
    choose.shuffle(plan)
    right: dict[str, list[bool]] = {way: [] for way in _WAYS}
    prices: list[float] = []
    for way, slow in plan:
        verdict = _judged(way, slow)
        named = [(each.kind, each.ranks) for each in verdict.culprits if each.kind != "step"]
        ok = verdict.healthy if way == "none" else named == [(way, (slow,))]
        right[way].append(ok)
        if ok and way != "none":
            prices += [each.price_ns / 1e6 for each in verdict.culprits if each.kind == way]
        print(f"{way} {slow}: {'right' if ok else 'WRONG'}\n{verdict}", flush=True)
    rows = []
    slowed = [each for way in _WAYS[1:] for each in right[way]]
    for what, found in (
        ("undisturbed jobs called healthy", right["none"]),
        ("slowed jobs of which the rank and what slows it are named, and nobody else", slowed),
        *((f"· {_NAMES[way]}", right[way]) for way in _WAYS[1:]),
    ):
        row = share(what, sum(found), len(found))
        if not what.startswith("·"):
            row = replace(row, target=f"{len(found)} of {len(found)}", met=all(found))
        rows.append(row)
    if prices:
        note = f"{min(prices):.3g} to {max(prices):.3g}"
        rows.append(Row("price of what adds 15 to 20 ms, median", median(prices), "ms", note=note))
    how = (
        f"{_PROCESSES} processes with `DistributedDataParallel` over gloo, one thread each, on the cores of this machine, {_STEPS} steps of a GPT of 2 layers; "
        "one rank, chosen by chance, sleeps 15 ms in its forward pass, 20 ms in its data or 20 ms between its passes. Jobs in random order. Intervals are Wilson's."
    )
    return Measured(rows, how)


_OPENS = b'"traceEvents": ['


def _template() -> tuple[bytes, bytes, list[str]]:
    """Return head and tail of a real profile of the demo model, and its events as texts."""
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 200, (4, 128))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as profiler:
        for _ in range(3):
            model(ids).logsumexp(-1).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.json")
        profiler.export_chrome_trace(str(path))
        text = path.read_bytes()
    at = text.index(_OPENS) + len(_OPENS)
    whole = json.loads(text)
    return text[:at], b"\n  ]}\n", [json.dumps(each, indent=4) for each in whole["traceEvents"]]


def _write(folder: Path, ranks: int, size: int, packed: bool) -> int:
    """Write a file of about ``size`` bytes for each rank; return how many bytes of JSON that is."""
    head, tail, events = _template()
    timed = [(text, json.loads(text)) for text in events]
    lasts = max(float(each.get("ts", 0)) for _, each in timed) - min(
        float(each["ts"]) for _, each in timed if each.get("ph") == "X"
    )
    total = 0
    for rank in range(ranks):
        path = folder / f"rank{rank}.pt.trace.json{'.gz' if packed else ''}"
        written, shift = 0, 0.0
        with gzip.open(path, "wb", 1) if packed else path.open("wb") as file:
            about = f'{{"backend": "gloo", "rank": {rank}, "world_size": {ranks}}}'
            first = head.replace(
                b'"schemaVersion"', f'"distributedInfo": {about},\n    "schemaVersion"'.encode()
            )
            file.write(first)
            between = b"\n"
            while written < size:
                moved = []
                for text, each in timed:
                    if "ts" in each:
                        text = text.replace(f'"ts": {each["ts"]}', f'"ts": {each["ts"] + shift:.3f}', 1)
                    moved.append(text)
                block = between + ",\n".join(moved).encode()
                file.write(block)
                written += len(block)
                between, shift = b",\n", shift + lasts + 1000
            file.write(tail)
        total += written
    return total


def _ours(folder: Path) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["MEGALENS_CACHE_DIR"] = cache
        began = time.perf_counter()
        with megalens.open(folder) as run:
            count = run.table("spans").num_rows
        return time.perf_counter() - began, count


def _json(folder: Path) -> float:
    began = time.perf_counter()
    for path in sorted(folder.iterdir()):
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            json.load(file)
    return time.perf_counter() - began


@benchmark(
    "Opening traces of PyTorch's profiler",
    "16 MB",
    megabytes=(1000, 16, "of JSON in all"),
    ranks=(8, "files"),
    rounds=(3, "times that each is opened"),
)
def trace_reading(options: argparse.Namespace) -> Measured:
    """How fast traces of PyTorch's profiler are opened, beside Python's json: files of one job in one run."""
    rows = []
    for packed in (False, True):
        folder = options.folder / f"packed-{packed}"
        folder.mkdir()
        size = _write(folder, options.ranks, options.megabytes * 1_000_000 // options.ranks, packed)
        ours, theirs, count = [], [], 0
        for _ in range(options.rounds):
            theirs.append(_json(folder))
            seconds, count = _ours(folder)
            ours.append(seconds)
        shutil.rmtree(folder)
        name = "packed with gzip" if packed else "plain"
        note = f"{size / 1e9:.2f} GB of JSON, {count} spans"
        rows += [
            Row(f"{name}: opened as a run", fmean(ours), "s", note=note),
            Row(f"{name}: json.load of each file, and nothing else", fmean(theirs), "s"),
            divided(f"{name}: json over ours", ratio(theirs, ours), "≥ 3", by="low"),
        ]
    how = (
        f"{options.ranks} files, made of a real profile of the demo model (operations with shapes and stacks) that is repeated, opened by `megalens.open` with an empty cache, "
        f"until its spans are a table; beside it `json.load` of the same files, which makes no spans of them. {options.rounds} rounds, one after the other."
    )
    return Measured(rows, how)
