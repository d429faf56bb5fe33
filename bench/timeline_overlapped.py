"""Judge jobs whose communication goes on while they work.

Slow passes, data, saves, pairs of ranks and whole nodes, each with the added milliseconds known: what the same job takes less without them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from megalens.instruments.timeline.analysis import analyse
from megalens.instruments.timeline.culprits import Verdict
from tests.kit.simulated_jobs import Fault, Job, Truth, simulate

from .report import Measured, Row, benchmark, share
from .timeline import in_processes

__all__ = ["CHOSEN", "JUDGED", "MORE", "Outcome", "draw", "outcome", "timeline_overlapped"]

CHOSEN, JUDGED, MORE = 0, 10_000, 20_000
"""Thresholds may be chosen on seeds from the first; figures are of seeds from the others."""
_SHAPES = (
    (1, 1, 8),
    (1, 1, 16),
    (1, 1, 32),
    (2, 1, 4),
    (2, 2, 4),
    (1, 2, 8),
    (4, 1, 4),
    (1, 4, 4),
    (8, 1, 4),
)
_KINDS = ("none", "forward", "backward", "device", "two", "node", "data", "host", "checkpoint")
_MORE = ("none", "most", "stall", "most", "node")
"""Of seeds from ``MORE``: with most ranks of a stage slow, and steps in which a rank stalls."""
_NAMED = {"forward": "device", "backward": "device", "two": "device", "node": "device", "most": "device"}
_RIGHT, _LITTLE = 0.2, 0.01
"""Of what a fault adds, and of a step: a price is right where it is closer than either."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job with one fault or none. Times in ms."""

    seed: int
    kind: str
    overlap: str
    found: bool
    """Whether the ranks are named, and nobody else among them; of a healthy job whether it is called so."""
    false: int
    """Culprits that are none."""
    added: float
    price: float
    step: float
    text: str

    @property
    def priced(self) -> bool:
        """Whether the price is what the fault adds."""
        return abs(self.price - self.added) <= max(_RIGHT * self.added, _LITTLE * self.step)


def draw(seed: int) -> tuple[Job, str]:
    """Return a job of a seed and the kind of its fault."""
    random = np.random.default_rng([seed, 43])
    kinds = _MORE if seed >= MORE else _KINDS
    kind = kinds[seed % len(kinds)]
    tensor, pipeline, data = _SHAPES[random.integers(len(_SHAPES))]
    job = Job(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        micro_batches=int(random.integers(pipeline, pipeline + 4)),
        layers=int(random.integers(2, 7)),
        steps=int(random.integers(20, 31)),
        seed=seed,
        norm=bool(random.random() < 0.5) or pipeline > 1,
        overlap=("buckets", "shards")[int(random.random() < 0.5)],
        node=int(random.choice([2, 4])) if tensor * data <= 8 else int(random.choice([4, 8])) // 2,
        transfer_ms=float(np.exp(random.uniform(np.log(0.1), np.log(4)))),
        noise=float(random.uniform(0.005, 0.03)),
    )
    if kind == "none":
        return job, kind
    size = 1 + float(np.exp(random.uniform(np.log(0.08), np.log(0.4))))
    rank = int(random.integers(job.ranks))
    ranks: tuple[int, ...] = (rank,)
    if kind == "two":
        # Less than half of those that do the same.
        stage = np.arange(tensor * data) + rank // (tensor * data) * tensor * data
        ranks = tuple(sorted(random.choice(stage, 2, replace=False).tolist()))
    if kind == "most":
        stage = np.arange(tensor * data) + rank // (tensor * data) * tensor * data
        most = int(random.integers(len(stage) // 2 + 1, len(stage)))
        ranks = tuple(sorted(random.choice(stage, most, replace=False).tolist()))
    if kind == "stall":
        steps = sorted(random.choice(np.arange(4, job.steps - 1), 3, replace=False).tolist())
        return replace(job, faults=tuple(Fault("host", ranks, size, step, step) for step in steps)), kind
    if kind == "node":
        first = rank // job.node * job.node
        ranks = tuple(range(first, first + job.node))
    if kind == "data":
        ranks = (rank % (tensor * data),)
    named = "device" if kind in ("two", "node", "most") else kind
    return replace(job, faults=(Fault(named, ranks, size, 1, job.steps),)), kind


def outcome(seed: int) -> Outcome:
    """Simulate and judge one job."""
    job, kind = draw(seed)
    table, truth = simulate(job)
    verdict = analyse(table).verdict()
    step = float(np.median(truth.step_ns)) / 1e6
    if kind == "none":
        count = len(verdict.culprits)
        return Outcome(seed, kind, job.overlap, verdict.healthy, count, 0, 0, step, str(verdict))
    _, clean = simulate(replace(job, faults=()))
    if kind == "stall":
        return _stalled(seed, job, verdict, truth, clean)
    (fault,) = job.faults
    added = step - float(np.median(clean.step_ns)) / 1e6
    all_named = [*verdict.culprits, *verdict.hidden]
    # Of a node that is a whole stage nobody can tell whether it has more to do.
    stage = job.pipeline > 1 and len(fault.ranks) == job.tensor * job.data
    kinds = {_NAMED.get(kind, kind), *(["stage"] if stage else [])}
    mine = [each for each in all_named if each.kind in kinds and {*each.ranks} <= {*fault.ranks}]
    found = {rank for each in mine for rank in each.ranks} == {*fault.ranks}
    false = sum(each not in mine for each in verdict.culprits)
    prices = [each.price_ns for each in mine if each in verdict.culprits]
    price = float(verdict.price_ns if len(prices) > 1 else sum(prices)) / 1e6
    return Outcome(seed, kind, job.overlap, found, false, added, price, step, f"{fault}\n{verdict}")


def _stalled(seed: int, job: Job, verdict: Verdict, truth: Truth, clean: Truth) -> Outcome:
    """Judge three long steps of a rank, large enough to be a culprit or not."""
    ranks, steps = job.faults[0].ranks, [each.first for each in job.faults]
    longer = (truth.step_ns - clean.step_ns)[np.array(steps) - 1] / 1e6
    found = [each for each in (*verdict.culprits, *verdict.stalls) if each.kind in ("step", "stall")]
    mine = [each for each in found if each.ranks == ranks and {*each.steps} <= {*steps}]
    false = len(verdict.culprits) + len(verdict.stalls) - len(mine)
    # What nobody waits for, or 5 % of a step, is rightly passed over.
    little = 0.05 * float(np.median(truth.step_ns)) / 1e6
    wanted = [step for step, ms in zip(steps, longer, strict=True) if ms > little]
    every = {*wanted} <= {step for each in mine for step in each.steps}
    size = float(np.mean([sum(ns for _, ns in each.longer) for each in mine] or [0.0])) / 1e6
    step = float(np.median(truth.step_ns)) / 1e6
    added = float(np.median(longer)) if mine or wanted else 0.0
    said = f"{job.faults}\n{verdict}"
    return Outcome(seed, "stall", job.overlap, every, false, added, size, step, said)


def rows(results: Sequence[Outcome]) -> list[Row]:
    """Return the figures of all jobs, and by kind."""
    faulty = [each for each in results if each.kind != "none"]
    found = sum(each.found for each in faulty)
    table = [
        _share("recall: the slow ranks are named, and no other", [each.found for each in faulty], "≥ 95"),
        _share("precision: culprits that are one", [True] * found + [False] * sum(each.false for each in results), "≥ 95"),
        _share("healthy jobs that are called healthy", [each.found for each in results if each.kind == "none"], "≥ 95"),
        _share("prices within 20 % of what was added, or 1 % of a step", [each.priced for each in faulty if each.found], "≥ 90"),
    ]  # fmt: skip
    for kind in dict.fromkeys((*_KINDS[1:], *_MORE[1:])):
        mine = [each for each in faulty if each.kind == kind]
        if not mine:
            continue
        false = sum(each.false for each in mine)
        table.append(_share(f"· {kind}: recall", [each.found for each in mine]))
        right = sum(each.found for each in mine)
        table.append(_share(f"· {kind}: precision", [True] * right + [False] * false))
        table.append(_share(f"· {kind}: priced", [each.priced for each in mine if each.found]))
    return table


def _share(what: str, hits: Sequence[bool], target: str = "") -> Row:
    return share(what, sum(hits), len(hits), target)


def _told(each: Outcome) -> str:
    if each.found and not each.false and each.priced:
        return ""
    priced = f"added {each.added:.3g} ms, price {each.price:.3g} ms of {each.step:.4g} ms"
    return f"seed {each.seed}, {each.kind}, {each.overlap}: {priced}\n{each.text}"


@benchmark(
    "Verdicts under overlapped communication",
    "14 jobs",
    jobs=(400, len(_KINDS), "simulated"),
    first=(JUDGED, "the first seed"),
    more=(100, len(_MORE), "jobs of other faults"),
)
def timeline_overlapped(options: argparse.Namespace) -> Measured:
    """Judge simulated jobs whose communication goes on while they work."""
    second = MORE + options.first - JUDGED
    seeds = [*range(options.first, options.first + options.jobs), *range(second, second + options.more)]
    how = (
        f"{options.jobs} simulated jobs, seeds from {options.first}, and {options.more} from {second}, of 8 to 32 ranks (TP × PP × DP) whose gradients are reduced bucket by bucket as by DDP, or whose weights are gathered a layer ahead as by FSDP, "
        f"over networks from fast to slower than the work; each with one fault of 8 to 40 % or none (most ranks of a stage, and three steps with a stall, from {second}), and noise of 0.5 to 3 %. "
        "The simulation (`tests/kit/simulated_jobs.py`) shares no code with what it tries; no threshold was chosen on these seeds. Intervals are Wilson's."
    )
    return Measured(rows(in_processes(outcome, seeds, _told)), how)
