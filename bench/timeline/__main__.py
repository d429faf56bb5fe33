"""Judge simulated jobs whose truth is known: ``python -m bench.timeline --jobs 2000``."""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from megalens.instruments.timeline.analysis import analyse
from megalens.instruments.timeline.clocks import Clocks
from megalens.instruments.timeline.megascan_files import TimelineError
from megalens.instruments.timeline.verdict import Culprit
from tests.kit.simulated_jobs import Fault, Job, Truth, simulate

from ..common import Row, percentile, wilson, write_results
from .draw import draw

__all__ = ["Judged", "judged"]


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


def _share(what: str, hits: int, count: int, target: str, bound: float, upper: bool = False) -> Row:
    low, high = wilson(hits, count)
    value = 100 * hits / max(count, 1)
    met = (value <= bound if upper else value >= bound) if target else None
    return Row(what, value, "%", 100 * low, 100 * high, target, met, f"{hits} of {count}")


def rows(results: Sequence[Judged], seconds: float) -> list[Row]:
    """Return the figures of all jobs."""
    faults, found = (sum(getattr(each, name) for each in results) for name in ("faults", "found"))
    false = sum(each.false for each in results)
    healthy = [each for each in results if each.healthy]
    offsets = [each for result in results for each in result.offsets]
    errors = [error / 1e3 for error, _ in offsets]
    prices = [abs(said - true) for result in results for said, true in result.prices]
    table = [
        Row("jobs", len(results), "jobs", note=f"{seconds:.0f} s"),
        _share("recall: faults named right in kind, ranks and steps", found, faults, "≥ 99.5", 99.5),
        _share("precision: culprits that are one", found, found + false, "≥ 99.5", 99.5),
        _share(
            "healthy jobs with a culprit",
            sum(each.false > 0 for each in healthy),
            len(healthy),
            "≤ 0.5",
            0.5,
            upper=True,
        ),
        Row("offset error, p50", percentile(errors, 50), "µs"),
        Row(
            "offset error, p99", percentile(errors, 99), "µs", target="≤ 10", met=percentile(errors, 99) <= 10
        ),
        _share(
            "offsets inside of their 95 % interval",
            sum(error <= half for error, half in offsets),
            len(offsets),
            "≥ 95",
            95,
        ),
        Row("half width of the interval, p50", percentile([half / 1e3 for _, half in offsets], 50), "µs"),
    ]
    table += _megascan(results)
    if prices:
        table.append(
            Row(
                "price against the same job without the fault, p50",
                100 * percentile(prices, 50),
                "% of a step",
            )
        )
        table.append(
            Row(
                "price against the same job without the fault, p95",
                100 * percentile(prices, 95),
                "% of a step",
            )
        )
    return table


def _megascan(results: Sequence[Judged]) -> list[Row]:
    able = [each for each in results if each.megascan is not None]
    named = [(rank in each.devices) for each in able for rank in each.megascan or ()]
    slow = [(rank in (each.megascan or ())) for each in able for rank in each.devices]
    healthy = [each for each in able if each.healthy]
    return [
        _share("MegaScan's heuristics: jobs that they can judge", len(able), len(results), "", 0),
        _share("· recall: slow devices that they name", sum(slow), len(slow), "", 0),
        _share("· precision: ranks they name that are slow", sum(named), len(named), "", 0),
        _share(
            "· healthy jobs with a slow rank",
            sum(bool(each.megascan) for each in healthy),
            len(healthy),
            "",
            0,
        ),
    ]


def large() -> list[Row]:
    """Judge 1,024 ranks × 100 steps."""
    table, _ = simulate(Job(8, 16, 8, 5, 2, 100, faults=(Fault("device", (500,), 1.1, 40, 100),)))
    began = time.perf_counter()
    verdict = analyse(table).verdict()
    seconds = time.perf_counter() - began
    right = [each.ranks for each in (*verdict.culprits, *verdict.hidden)] == [(500,)]
    note = f"{len(table)} spans; culprit {'named' if right else 'not named'}"
    return [
        Row(
            "1,024 ranks × 100 steps, merged and judged",
            seconds,
            "s",
            target="≤ 10",
            met=seconds <= 10,
            note=note,
        )
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=1200, help="the first seed (%(default)s)")
    parser.add_argument("--most-ranks", type=int, default=1024)
    parser.add_argument("--quick", action="store_true", help="8 small jobs: shows that it works")
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.jobs, asked.most_ranks = 8, 16
    sizes = [] if asked.quick else large()
    began = time.perf_counter()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    results: list[Judged] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        seeds = range(asked.first, asked.first + asked.jobs)
        prices = (seed % 5 == 0 for seed in seeds)
        for each in pool.map(judged, seeds, (asked.most_ranks for _ in seeds), prices, chunksize=4):
            results.append(each)
            for line in each.wrong:
                print(f"seed {each.seed}, {each.ranks} ranks: {line}", flush=True)
    table = [*rows(results, time.perf_counter() - began), *sizes]
    how = (
        f"{asked.jobs} simulated jobs, seeds from {asked.first}, of 8 to {asked.most_ranks} ranks (TP × PP × DP), with 0 to 4 faults of at least 5 %, "
        "clocks that are seconds apart and drift by up to 50 ppm, and transfers with a heavy tail. The simulation (`tests/kit/simulated_jobs.py`) shares no code with what it tries. "
        "Intervals are Wilson's. MegaScan's three heuristics judge the same spans; counted for them are jobs with at least 2 tensor- and 2 data-parallel ranks."
    )
    path = write_results(
        "timeline", "Verdicts and clocks of simulated jobs", table, how=how, quick=asked.quick
    )
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
