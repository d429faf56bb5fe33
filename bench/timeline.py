"""Judge simulated jobs whose truth is known."""

from __future__ import annotations

import argparse
import math
import os
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

from .common import percentile, timed
from .report import Measured, Row, benchmark, share
from .report import judged as against

__all__ = ["Judged", "draw", "in_processes", "judged", "timeline"]

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
    links = [each for each in faults if each.kind == "link"]
    return (
        all(2 * len(ranks) < peers or (peers == 2 and len(ranks) == 1) for ranks in slow.values())
        and len(links) <= 1
        and sum(each.kind == "stage" for each in faults) <= 1
        and sum(each.kind == "step" for each in faults) <= 1
    )


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


def judged(seed: int, most_ranks: int = 1024, prices: bool = False) -> Judged:
    """Simulate and judge one job."""
    job = draw(seed, most_ranks)
    table, truth = simulate(job)
    analysis = analyse(table)
    verdict = analysis.verdict()
    result = Judged(seed, job.ranks, not job.faults, len(job.faults))
    # Of what nobody waits for it is right to say that it is slow, and no fault to pass over it.
    left = [one for each in (*verdict.culprits, *verdict.hidden) for one in each.parts or (each,)]
    named = len([one for each in verdict.culprits for one in each.parts or (each,)])
    hidden = left[named:]
    for fault in job.faults:
        match = next((each for each in left if _same(fault, each)), None)
        if match is None:
            result.wrong.append(f"missed {fault}")
            continue
        left.remove(match)
        result.found += 1
    false = [each for each in left if each not in hidden]
    result.false = len(false)
    result.wrong += [f"false {each}" for each in false]
    result.offsets = list(_offsets(analysis.clocks, truth))
    try:
        result.megascan = tuple(analysis.verdict(method="megascan").slow)
    except TimelineError:
        result.megascan = None
    result.devices = frozenset(rank for fault in job.faults if fault.kind == "device" for rank in fault.ranks)
    if prices and len(job.faults) == 1 and result.found == 1 and job.faults[0].kind != "step":
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


def large() -> list[Row]:
    """Judge 1,024 ranks × 100 steps."""
    table, _ = simulate(Job(8, 16, 8, 5, 2, 100, faults=(Fault("device", (500,), 1.1, 40, 100),)))
    verdicts: list[Verdict] = []
    seconds = timed(lambda: verdicts.append(analyse(table).verdict()))
    (verdict,) = verdicts
    right = [each.ranks for each in (*verdict.culprits, *verdict.hidden)] == [(500,)]
    note = f"{len(table)} spans; culprit {'named' if right else 'not named'}"
    return [against("1,024 ranks × 100 steps, merged and judged", seconds, "s", "≤ 10", note)]


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
    first=(1200, "the first seed"),
    most_ranks=(1024, 16, "of a job"),
)
def timeline(options: argparse.Namespace) -> Measured:
    """Judge simulated jobs whose truth is known."""
    sizes = [] if options.quick else large()
    seeds = range(options.first, options.first + options.jobs)
    judge = partial(_judged_or_priced, most_ranks=options.most_ranks)
    table = [*rows(in_processes(judge, seeds, _told)), *sizes]
    how = (
        f"{options.jobs} simulated jobs, seeds from {options.first}, of 8 to {options.most_ranks} ranks (TP × PP × DP), with 0 to 4 faults of at least 5 %, "
        "clocks that are seconds apart and drift by up to 50 ppm, and transfers with a heavy tail. The simulation (`tests/kit/simulated_jobs.py`) shares no code with what it tries. "
        "Intervals are Wilson's. MegaScan's three heuristics judge the same spans; counted for them are jobs with at least 2 tensor- and 2 data-parallel ranks."
    )
    return Measured(table, how)


def _judged_or_priced(seed: int, most_ranks: int) -> Judged:
    return judged(seed, most_ranks, prices=seed % 5 == 0)
