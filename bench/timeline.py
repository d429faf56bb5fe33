"""Verdicts and clocks of simulated jobs whose truth is known, and of jobs whose communication goes on while they work.

The latter have slow passes, data, saves, pairs of ranks and whole nodes, each with the added milliseconds known: what the same job takes less without them.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from megalens.instruments.timeline.analysis import analyse
from megalens.instruments.timeline.clocks import Clocks
from megalens.instruments.timeline.culprits import Culprit, Verdict
from megalens.instruments.timeline.megascan_files import TimelineError
from tests.kit.simulated_jobs import Fault, Job, Truth, simulate

from .common import Measured, Row, benchmark, percentile, share
from .common import judged as against

__all__ = ["JUDGED", "judged", "outcome", "timeline", "timeline_overlapped"]

_Found = TypeVar("_Found")

_SHAPES = {
    8: ((2, 2, 2), (1, 8, 1), (1, 1, 8), (2, 4, 1), (8, 1, 1), (4, 1, 2), (1, 4, 2)),
    16: ((2, 2, 4), (4, 4, 1), (1, 4, 4), (2, 8, 1), (1, 2, 8), (4, 2, 2)),
    32: ((4, 4, 2), (8, 2, 2), (2, 4, 4), (1, 8, 4)),
    64: ((8, 4, 2), (4, 4, 4), (1, 8, 8)),
    256: ((8, 8, 4),),
    1024: ((8, 16, 8),),
}
_SHARE = {8: 0.45, 16: 0.3, 32: 0.155, 64: 0.08, 256: 0.01, 1024: 0.005}
_FIRST = 1200
_KINDS = {"device": 0.5, "data": 0.13, "host": 0.13, "link": 0.12, "stage": 0.06, "step": 0.06}


def draw(seed: int, most_ranks: int = 1024) -> Job:
    """Return a job of a seed: its layout, its chances and 0 to 4 faults, a quarter of them healthy.

    Faults are at least 5 % (of links 30 %, of stages 15 %), go on for at least eight steps, and less than half of the ranks that do the same are slow: who is slow is who differs.
    """
    random = np.random.default_rng([seed, 7])
    sizes = [size for size in _SHAPES if size <= most_ranks]
    chances = np.array([_SHARE[size] for size in sizes])
    size = int(random.choice(sizes, p=chances / chances.sum()))
    tensor, pipeline, data = _SHAPES[size][random.integers(len(_SHAPES[size]))]
    alone = tensor * data == 1
    job = Job(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        micro_batches=int(random.integers(4, 9)),
        layers=int(random.integers(1, 3)),
        steps=int(random.integers(24, 41)) if size < 256 else 24,
        seed=seed,
        granularity="layers" if alone else "phases",
        norm=bool(random.random() < 0.8) or pipeline == 1,
    )
    count = int(random.choice(5, p=(0.25, 0.35, 0.2, 0.12, 0.08)))
    faults: list[Fault] = []
    for _ in range(20 * count):
        if len(faults) == count:
            break
        fault = _fault(job, random)
        if fault is not None and _apart(job, [*faults, fault]):
            faults.append(fault)
    return replace(job, faults=tuple(faults))


def _fault(job: Job, random: np.random.Generator) -> Fault | None:
    kind = str(random.choice(list(_KINDS), p=list(_KINDS.values())))
    alone = job.tensor * job.data == 1
    first, last = 1, job.steps
    # What has nothing to compare with shows by beginning or ending.
    if random.random() < 0.5 or (alone and kind in ("host", "link")):
        first = int(random.integers(9, job.steps - 9))
        last = int(min(job.steps, first + random.integers(8, max(9, job.steps // 2))))
    grid = np.arange(job.ranks).reshape(job.pipeline, job.data, job.tensor)
    rank = int(random.integers(job.ranks))
    stage, d, t = (int(each[0]) for each in np.where(grid == rank))

    def size(least: float, most: float) -> float:
        return 1 + float(np.exp(random.uniform(np.log(least), np.log(most))))

    if kind == "device":
        return Fault(kind, (rank,), size(0.05, 0.5), first, last)
    if kind == "host":
        return Fault(kind, (rank,), size(0.05, 0.3), first, last)
    if kind == "data":
        return Fault(kind, (int(grid[0, d, t]),), size(0.05, 0.3), first, last)
    if kind == "step":
        step = int(random.integers(4, job.steps - 3))
        return Fault(kind, tuple(range(job.ranks)), size(1, 4), step, step)
    if kind == "stage":
        if job.pipeline < 3:
            return None
        return Fault(kind, tuple(grid[stage].ravel().tolist()), size(0.15, 0.6), 1, job.steps)
    ends: list[int] = []
    if job.pipeline > 1 and (random.random() < 0.5 or job.tensor == 1):
        low = min(stage, job.pipeline - 2)
        ends = grid[low : low + 2, d, t].tolist()
    elif job.tensor > 1 and job.pipeline * job.data > 2:
        ends = grid[stage, d, :2].tolist()
    return Fault(kind, tuple(ends), size(0.3, 3), first, last) if ends else None


def _apart(job: Job, faults: list[Fault]) -> bool:
    """Return whether each fault can be told from the others: less than half of the ranks of a stage are slow, no two faults are on one rank or link, and one stage at most has more to do."""
    slow: dict[tuple[str, int], set[int]] = {}
    taken: list[tuple[int, ...]] = []
    for fault in faults:
        if fault.kind in ("device", "host", "data"):
            if any(fault.ranks == each for each in taken):
                return False
            taken.append(fault.ranks)
            stage = fault.ranks[0] // (job.tensor * job.data)
            alone = job.tensor * job.data == 1
            slow.setdefault((fault.kind, 0 if alone else stage), set()).update(fault.ranks)
    peers = job.pipeline if job.tensor * job.data == 1 else job.tensor * job.data
    few = all(2 * len(ranks) < peers or (peers == 2 and len(ranks) == 1) for ranks in slow.values())
    kinds = [each.kind for each in faults]
    return few and all(kinds.count(kind) <= 1 for kind in ("link", "stage", "step"))


@dataclass
class Judged:
    """What became of one job."""

    seed: int
    ranks: int
    healthy: bool
    faults: int = 0
    found: int = 0
    false: int = 0
    offsets: list[tuple[float, float]] = field(default_factory=list)
    """Errors and half widths, ns, of every rank but the references."""
    prices: list[tuple[float, float]] = field(default_factory=list)
    """Shares of a step: what the price says, and what the same job takes less without the fault."""
    wrong: list[str] = field(default_factory=list)
    megascan: tuple[int, ...] | None = None
    """Ranks that MegaScan's heuristics call slow; None where they have nothing to compare."""
    devices: frozenset[int] = frozenset()
    """Ranks whose device is slow."""


def judged(seed: int, most_ranks: int = 1024) -> Judged:
    """Simulate and judge one job; look at the price of a single fault of each fifth."""
    job = draw(seed, most_ranks)
    table, truth = simulate(job)
    analysis = analyse(table)
    verdict = analysis.verdict()
    result = Judged(seed, job.ranks, not job.faults, len(job.faults))
    # Of what nobody waits for it is right to say that it is slow, and no fault to pass over it.
    left, hidden = (
        [one for each in of for one in each.parts or (each,)] for of in (verdict.culprits, verdict.hidden)
    )
    for fault in job.faults:
        match = next((each for each in (*left, *hidden) if _same(fault, each)), None)
        if match is None:
            result.wrong.append(f"missed {fault}")
            continue
        (left if match in left else hidden).remove(match)
        result.found += 1
    result.false = len(left)
    result.wrong += [f"false {each}" for each in left]
    result.offsets = list(_offsets(analysis.clocks, truth))
    try:
        result.megascan = tuple(analysis.verdict(method="megascan").slow)
    except TimelineError:
        result.megascan = None
    result.devices = frozenset(rank for fault in job.faults if fault.kind == "device" for rank in fault.ranks)
    if seed % 5 == 0 and len(job.faults) == 1 and result.found == 1 and job.faults[0].kind != "step":
        result.prices = [_price(job, next(iter(verdict.culprits or verdict.hidden)), truth)]
    return result


def _same(fault: Fault, culprit: Culprit) -> bool:
    ranks, named = {*fault.ranks}, {*culprit.ranks}
    if fault.kind != culprit.kind or not (ranks <= named if fault.kind == "link" else ranks == named):
        return False
    both = min(fault.last, culprit.last) - max(fault.first, culprit.first) + 1
    return both / (max(fault.last, culprit.last) - min(fault.first, culprit.first) + 1) >= 0.7


def _offsets(clocks: Clocks, truth: Truth) -> Iterator[tuple[float, float]]:
    """Give error and half width of each rank's offset in the middle of the recording."""
    now = truth.true(clocks.ranks, clocks.middle)
    wanted = now * (1 + truth.drift[clocks.component]) + truth.offset_ns[clocks.component]
    error = np.abs(clocks.aligned(clocks.ranks, clocks.middle) - wanted)
    for at, rank in enumerate(clocks.ranks):
        if rank != clocks.component[at]:
            yield float(error[at]), float(clocks.half_width_ns[at])


def _price(job: Job, culprit: Culprit, truth: Truth) -> tuple[float, float]:
    """Return the price and the true difference to the same job without the fault, as shares of a step."""
    _, clean = simulate(Job(**{**vars(job), "faults": ()}))
    inside = slice(culprit.first - 1, culprit.last)
    before = float(np.median(truth.step_ns[inside]))
    price = 0.0 if math.isnan(culprit.price_ns) else culprit.price_ns
    return price / before, 1 - float(np.median(clean.step_ns[inside])) / before


def rows(results: Sequence[Judged]) -> list[Row]:
    """Return the figures of all jobs."""
    faults, found = (sum(getattr(each, name) for each in results) for name in ("faults", "found"))
    false = sum(each.false for each in results)
    healthy = [each for each in results if each.healthy]
    offsets = [each for result in results for each in result.offsets]
    errors = [error / 1e3 for error, _ in offsets]
    prices = [abs(said - true) for result in results for said, true in result.prices]
    table = [
        Row("jobs", len(results), "jobs"),
        share("recall: faults named right in kind, ranks and steps", found, faults, "≥ 99.5"),
        share("precision: culprits that are one", found, found + false, "≥ 99.5"),
        share("healthy jobs with a culprit", sum(each.false > 0 for each in healthy), len(healthy), "≤ 0.5"),
        Row("offset error, p50", percentile(errors, 50), "µs"),
        against("offset error, p99", percentile(errors, 99), "µs", "≤ 10"),
        share(
            "offsets inside of their 95 % interval",
            sum(e <= half for e, half in offsets),
            len(offsets),
            "≥ 95",
        ),
        Row("half width of the interval, p50", percentile([half / 1e3 for _, half in offsets], 50), "µs"),
    ]
    table += _megascan(results)
    if prices:
        what = "price against the same job without the fault"
        table += [Row(f"{what}, p{at}", 100 * percentile(prices, at), "% of a step") for at in (50, 95)]
    return table


def _megascan(results: Sequence[Judged]) -> list[Row]:
    able = [each for each in results if each.megascan is not None]
    named = [(rank in each.devices) for each in able for rank in each.megascan or ()]
    slow = [(rank in (each.megascan or ())) for each in able for rank in each.devices]
    healthy = [each for each in able if each.healthy]
    return [
        share("MegaScan's heuristics: jobs that they can judge", len(able), len(results)),
        share("· recall: slow devices that they name", sum(slow), len(slow)),
        share("· precision: ranks they name that are slow", sum(named), len(named)),
        share("· healthy jobs with a slow rank", sum(bool(each.megascan) for each in healthy), len(healthy)),
    ]


def _large() -> Row:
    """Judge 1,024 ranks × 100 steps."""
    table, _ = simulate(Job(8, 16, 8, 5, 2, 100, faults=(Fault("device", (500,), 1.1, 40, 100),)))
    began = time.perf_counter()
    verdict = analyse(table).verdict()
    seconds = time.perf_counter() - began
    right = [each.ranks for each in (*verdict.culprits, *verdict.hidden)] == [(500,)]
    note = f"{len(table)} spans; culprit {'named' if right else 'not named'}"
    return against("1,024 ranks × 100 steps, merged and judged", seconds, "s", "≤ 10", note)


def in_processes(
    judge: Callable[[int], _Found], seeds: Iterable[int], told: Callable[[_Found], str]
) -> list[_Found]:
    """Judge the jobs of all seeds on all cores; say of each what it wants to be said."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    found: list[_Found] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for each in pool.map(judge, seeds, chunksize=4):
            found.append(each)
            if text := told(each):
                print(text, flush=True)
    return found


def _told(each: Judged) -> str:
    return "\n".join(f"seed {each.seed}, {each.ranks} ranks: {line}" for line in each.wrong)


@benchmark(
    "Verdicts and clocks of simulated jobs",
    "8 small jobs",
    jobs=(2000, 8, "simulated"),
    most_ranks=(1024, 16, "of a job"),
)
def timeline(options: argparse.Namespace) -> Measured:
    """Judge simulated jobs whose truth is known."""
    sizes = [] if options.quick else [_large()]
    seeds = range(_FIRST, _FIRST + options.jobs)
    table = [*rows(in_processes(partial(judged, most_ranks=options.most_ranks), seeds, _told)), *sizes]
    how = (
        f"{options.jobs} simulated jobs, seeds from {_FIRST}, of 8 to {options.most_ranks} ranks (TP × PP × DP), with 0 to 4 faults of at least 5 %, "
        "clocks that are seconds apart and drift by up to 50 ppm, and transfers with a heavy tail. The simulation (`tests/kit/simulated_jobs.py`) shares no code with what it tries. "
        "Intervals are Wilson's. MegaScan's three heuristics judge the same spans; counted for them are jobs with at least 2 tensor- and 2 data-parallel ranks."
    )
    return Measured(table, how)


JUDGED, MORE = 10_000, 20_000
"""Thresholds may be chosen on seeds from 0; figures are of seeds from these."""
_OVERLAPPED_SHAPES = ((1, 1, 8), (1, 1, 16), (1, 1, 32), (2, 1, 4), (2, 2, 4), (1, 2, 8), (4, 1, 4), (1, 4, 4), (8, 1, 4))  # fmt: skip
_OVERLAPPED_KINDS = ("none", "forward", "backward", "device", "two", "node", "data", "host", "checkpoint")
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


def _overlapped(seed: int) -> tuple[Job, str]:
    """Return a job of a seed and the kind of its fault."""
    random = np.random.default_rng([seed, 43])
    kinds = _MORE if seed >= MORE else _OVERLAPPED_KINDS
    kind = kinds[seed % len(kinds)]
    tensor, pipeline, data = _OVERLAPPED_SHAPES[random.integers(len(_OVERLAPPED_SHAPES))]
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
    if kind in ("two", "most"):
        # Two are less than half of those that do the same.
        stage = np.arange(tensor * data) + rank // (tensor * data) * tensor * data
        count = 2 if kind == "two" else int(random.integers(len(stage) // 2 + 1, len(stage)))
        ranks = tuple(sorted(random.choice(stage, count, replace=False).tolist()))
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
    job, kind = _overlapped(seed)
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


def overlapped_rows(results: Sequence[Outcome]) -> list[Row]:
    """Return the figures of all jobs, and by kind."""
    faulty = [each for each in results if each.kind != "none"]
    found = sum(each.found for each in faulty)
    table = [
        _share("recall: the slow ranks are named, and no other", [each.found for each in faulty], "≥ 95"),
        _share("precision: culprits that are one", [True] * found + [False] * sum(each.false for each in results), "≥ 95"),
        _share("healthy jobs that are called healthy", [each.found for each in results if each.kind == "none"], "≥ 95"),
        _share("prices within 20 % of what was added, or 1 % of a step", [each.priced for each in faulty if each.found], "≥ 90"),
    ]  # fmt: skip
    for kind in dict.fromkeys((*_OVERLAPPED_KINDS[1:], *_MORE[1:])):
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


def _told_overlapped(each: Outcome) -> str:
    if each.found and not each.false and each.priced:
        return ""
    priced = f"added {each.added:.3g} ms, price {each.price:.3g} ms of {each.step:.4g} ms"
    return f"seed {each.seed}, {each.kind}, {each.overlap}: {priced}\n{each.text}"


@benchmark(
    "Verdicts under overlapped communication",
    "14 jobs",
    jobs=(400, len(_OVERLAPPED_KINDS), "simulated"),
    more=(100, len(_MORE), "jobs of other faults"),
)
def timeline_overlapped(options: argparse.Namespace) -> Measured:
    """Judge simulated jobs whose communication goes on while they work."""
    seeds = [*range(JUDGED, JUDGED + options.jobs), *range(MORE, MORE + options.more)]
    how = (
        f"{options.jobs} simulated jobs, seeds from {JUDGED}, and {options.more} from {MORE}, of 8 to 32 ranks (TP × PP × DP) whose gradients are reduced bucket by bucket as by DDP, or whose weights are gathered a layer ahead as by FSDP, "
        f"over networks from fast to slower than the work; each with one fault of 8 to 40 % or none (most ranks of a stage, and three steps with a stall, from {MORE}), and noise of 0.5 to 3 %. "
        "The simulation (`tests/kit/simulated_jobs.py`) shares no code with what it tries; no threshold was chosen on these seeds. Intervals are Wilson's."
    )
    return Measured(overlapped_rows(in_processes(outcome, seeds, _told_overlapped)), how)
