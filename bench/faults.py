"""What is found: faults in trainings by the training monitor, slowed ranks of real jobs by the timeline, and errors by a million hostile cases over every outside surface.

The hostile cases are ``tests/fuzz``; the page's own readers run the same hostile values through jest.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import multiprocessing

from megalens.demo import GPTConfig
from megalens.instruments.timeline import analyse
from megalens.instruments.timeline.culprits import Verdict as JobVerdict
from megalens.runs import open_run
from tests.fuzz.__main__ import report as print_findings
from tests.fuzz.suite import Result, run_cases, shares
from tests.fuzz.worker import MEMORY_BYTES, SECONDS
from tests.kit.monitor_faults import ranks
from tests.kit.monitor_faults.healthy import HEALTHY
from tests.kit.monitor_faults.judging import Verdict, verdict_of
from tests.kit.monitor_faults.running import KINDS, LOCAL, false_alarms, fault_alarms, kind_alarms
from tests.kit.monitor_faults.unseen import CHOSEN

from .common import (
    ROOT,
    Measured,
    Row,
    benchmark,
    judged,
    share,
    wilson,
    write_results,
)
from .steps import PROCESSES, replica

__all__ = ["fuzz", "monitor_faults", "timeline_real"]

_SOON = 20
"""Steps within which a small mistake is to be found."""


@benchmark(
    "What the training monitor finds",
    "few faults and steps",
    steps=(500, 200, "steps of each healthy training"),
    every=(1, 8, "of so many faults one is put in"),
)
def monitor_faults(options: argparse.Namespace) -> Measured:
    """What the training monitor finds, and how often it is wrong: trainings with a fault put in, and healthy ones in which it is to stay silent."""
    every, steps = options.every, options.steps
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        # Thresholds were chosen on the first of the kinds, which say nothing here.
        parts = (
            (LOCAL, range(0, len(LOCAL), every), fault_alarms),
            (KINDS, range(len(CHOSEN), len(KINDS), every), kind_alarms),
        )
        local, kinds = (
            [verdict_of(of[at], *given) for at, given in zip(chosen, pool.map(alarms, chosen), strict=True)]
            for of, chosen, alarms in parts
        )
        found = [*local, *ranks.verdicts(ranks.FAULTS[:: (every + 1) // 2])]
        for each in (*found, *kinds):
            print(_line(each), flush=True)
        chosen = range(0, len(HEALTHY), every)
        healthy = list(pool.map(false_alarms, chosen, [steps] * len(chosen)))
    if not options.quick:
        healthy.append(ranks.healthy(3, steps))
    for told, number in Counter(told for _, _, alarms in healthy for told in alarms).items():
        print(f"false alarm × {number}: {told}", flush=True)
    how = (
        f"{len(found)} faults, each put into a real training on the CPU that is watched by megalens.monitor with its own settings and activations at every step: a small GPT, one with experts, one in half precision, a "
        "classifier, and replicas on 2 to 4 processes. A fault is found when the first alarm of severity critical or warning comes in its step or one of the 40 after it (20 with several processes), and none before. Wrong values count as found when "
        f"that is in their step or the next. {len(healthy)} healthy trainings of {steps} steps differ in seed, size, schedule, warm-up, optimizer, betas, clipping, batch, micro-batches, dropout, precision, model and kind, with seeds that no threshold was chosen with; two go on from a checkpoint, and one is of three processes. Then {len({_kind(each) for each in kinds})} kinds of small mistakes on "
        f"{len({each.fault.name.partition(':')[0] for each in kinds})} models and seeds that no threshold was chosen on, found when the first alarm comes within {_SOON} steps. What follows from an alarm is none. Intervals are Wilson's."
    )
    return Measured([*_monitor_rows(found, healthy), *_kind_rows(kinds)], how)


def _monitor_rows(found: Sequence[Verdict], healthy: Sequence[tuple[int, int, list[str]]]) -> list[Row]:
    values = [each for each in found if each.fault.value]
    placed = [each for each in found if each.fault.module or each.fault.direction or each.fault.rank >= 0]
    steps, peer = (sum(each[at] for each in healthy) for at in (0, 1))
    false = sum(len(alarms) for _, _, alarms in healthy)
    rows = [
        _share("faults that were found", found, lambda each: each.found, 97),
        _share("wrong values found within one step", values, lambda each: each.soon, 100),
        _share(
            "first anomaly right in rank, module and part",
            placed,
            lambda each: each.found and each.right == 1,
            95,
        ),
        _share("· within the first three", placed, lambda each: each.found and 0 < each.right <= 3, 100),
        _share("faults that the peer's two rules report", found, lambda each: each.peer),
        _share("· and report nothing before", found, lambda each: each.peer and not each.peer_before),
        _number("false alarms in 100,000 healthy steps", false, steps, 1.0),
        _number("· of the peer's two rules", peer, steps),
    ]
    for each in found:
        early = "" if each.first == "nothing" else f"too early: {each.first}"
        rows += [] if each.found else [Row(f"missed: {each.fault.name}", 1, "", note=early)]
    elsewhere = [each for each in placed if each.found and each.right != 1]
    unit = "th alarm that is right"
    rows += [Row(f"elsewhere: {e.fault.name}", e.right, unit, note=f"first: {e.first}") for e in elsewhere]
    return rows


def _kind(each: Verdict) -> str:
    return each.fault.name.partition(": ")[2]


def _kind_rows(kinds: Sequence[Verdict]) -> list[Row]:
    def soon(each: Verdict) -> bool:
        return each.found and each.late <= _SOON

    placed = [each for each in kinds if each.fault.module or each.fault.direction]
    names = dict.fromkeys(map(_kind, kinds))
    return [
        _share("small mistakes found, of all kinds", kinds, soon, 90),
        _share(
            "· first anomaly right in module and part", placed, lambda each: soon(each) and each.right == 1
        ),
        *(_share(f"· {name}", [e for e in kinds if _kind(e) == name], soon) for name in names),
        *(Row(f"missed: {each.fault.name}", 1, "") for each in kinds if not soon(each)),
    ]


def _share(
    what: str, of: Sequence[Verdict], good: Callable[[Verdict], bool], target: float | None = None
) -> Row:
    aim = "" if target is None else f"≥ {target} %"
    return share(what, sum(good(each) for each in of), len(of), aim)


def _number(what: str, number: int, steps: int, target: float | None = None) -> Row:
    low, high = (1e5 * end for end in wilson(number, steps))
    note, aim = f"{number} in {steps:,} steps", "" if target is None else f"≤ {target:.0f}"
    return judged(what, 1e5 * number / steps, "", aim, note, low=low, high=high)


def _line(each: Verdict) -> str:
    place = each.fault.module or each.fault.direction or each.fault.rank >= 0
    word = (
        ("found" if not place or each.right == 1 else f"elsewhere ({each.right})") if each.found else "MISSED"
    )
    return f"{word:14}{each.fault.name}: {each.late:+d} {each.first}"


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
    with replica(rank, folder, config, sgd, timeline="phases", name="real") as (model, tracer, learn):
        model.blocks[0].register_forward_hook(lambda *_: time.sleep(waits.get("device", 0)))
        for batch in torch.utils.data.DataLoader(_Batches(waits.get("data", 0)), batch_size=None):
            with tracer.step():
                time.sleep(waits.get("host", 0))
                learn(batch)


def _verdict_of_job(way: str, slow: int) -> JobVerdict:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_slowed, (folder, way, slow), nprocs=PROCESSES, join=True)
        (recording,) = Path(folder).glob("*/run.json")
        with open_run(recording.parent) as run:
            return analyse(run).verdict()


@benchmark("Verdicts of real jobs", "3 jobs", jobs=(30, 3, "of each kind"))
def timeline_real(options: argparse.Namespace) -> Measured:
    """Judge real jobs of 4 processes on this machine: some with a rank that is slowed, some with none."""
    choose = random.Random(0)
    plan = [("none", -1)] * options.jobs
    plan += [(_WAYS[1 + at % 3], choose.randrange(PROCESSES)) for at in range(options.jobs)]
    choose.shuffle(plan)
    right: dict[str, list[bool]] = {way: [] for way in _WAYS}
    prices: list[float] = []
    for way, slow in plan:
        verdict = _verdict_of_job(way, slow)
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
        f"{PROCESSES} processes with `DistributedDataParallel` over gloo, one thread each, on the cores of this machine, {_STEPS} steps of a GPT of 2 layers; "
        "one rank, chosen by chance, sleeps 15 ms in its forward pass, 20 ms in its data or 20 ms between its passes. Jobs in random order. Intervals are Wilson's."
    )
    return Measured(rows, how)


_ROUND = 50_000
# What the page reads, as the tests of `src/__tests__/fuzz.spec.ts` are called; together a tenth of all cases.
_PAGE_SURFACES = 6


@benchmark(
    "Hostile inputs",
    "10,000 cases",
    cases=(1_000_000, 10_000, "in all"),
    seed=(-1, "of all cases (a new one, printed)"),
)
def fuzz(options: argparse.Namespace) -> Measured:
    """Run a million hostile cases over every outside surface."""
    seed = secrets.randbelow(2**31) if options.seed < 0 else options.seed
    cores = len(os.sched_getaffinity(0))
    began, first = time.monotonic(), 0
    results: dict[str, Result] = {}
    page: dict[str, Row] = {}
    rows: list[Row] = []
    how = (
        "Inputs made from right ones by grammar-aware mutation, each in a process that may compute two seconds and take 512 MB more than it had "
        "(Python), or within two seconds (the page's TypeScript in Node). A finding is any error that is not typed, a death, and what "
        "passes a limit. Memory is what a process grew by over all its cases."
    )
    # In rounds, each written, so that a run that is ended early tells what it has.
    for at in range(0, options.cases, _ROUND):
        part = min(_ROUND, options.cases - at)
        in_page = max(1, part // 10 // _PAGE_SURFACES)
        _page(in_page, seed + at, page)
        counts = shares(part - _PAGE_SURFACES * in_page)
        for name, result in run_cases(counts, first=first, workers=cores, seed=seed).items():
            results.setdefault(name, Result()).join(result)
        first += max(counts.values())
        rows = [*(_fuzz_row(name, result) for name, result in results.items()), *page.values()]
        note = f"{time.monotonic() - began:.0f} s, seed {seed}"
        rows.insert(0, Row("cases in all", sum(row.value for row in rows), "cases", note=note))
        write_results("fuzz", "Hostile inputs", rows, how=how, quick=options.quick)
    print_findings(results, seed)
    return Measured(rows, how)


def _fuzz_row(name: str, result: Result) -> Row:
    found = sum(each.count for each in result.findings.values())
    return Row(
        name,
        result.cases,
        "cases",
        target=f"none found, ≤ {SECONDS:g} s, ≤ {MEMORY_BYTES >> 20} MB",
        met=found == 0 and result.seconds <= SECONDS and result.bytes <= MEMORY_BYTES,
        note=f"{result.refused} refused, {result.accepted} accepted, {found} found; at most {result.seconds:.2f} s, {result.bytes >> 20} MB",
        extra={name: getattr(result, name) for name in ("refused", "accepted", "seconds", "bytes")}
        | {"found": found},
    )


def _page(cases: int, seed: int, rows: dict[str, Row]) -> None:
    """Run the page's surfaces and add to their rows."""
    done = subprocess.run(
        ["npx", "jest", "src/__tests__/fuzz.spec.ts", "--verbose", "--testTimeout=3600000"],
        cwd=ROOT,
        env={
            **os.environ,
            "MEGALENS_FUZZ_CASES": str(cases),
            "MEGALENS_FUZZ_SEED": str(seed),
            "FORCE_COLOR": "0",
            "CI": "true",
        },
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^\s+([✓✕]) (.+?)(?: \((\d+) m?s\))?$", done.stderr, re.M)
    if len(found) != _PAGE_SURFACES:
        raise RuntimeError(f"jest ran {len(found)} of {_PAGE_SURFACES} tests:\n{done.stderr[-3000:]}")
    if done.returncode:
        print(done.stderr[-8000:], file=sys.stderr)
    for mark, name, _ in found:
        known = rows.get(name)
        met = mark == "✓" and (known is None or known.met is True)
        rows[name] = Row(
            f"page: {name}",
            cases + (known.value if known else 0),
            "cases",
            target=f"none found, ≤ {SECONDS:g} s",
            met=met,
            note="" if met else "found",
        )
