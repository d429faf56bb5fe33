"""A million hostile cases over every outside surface.

The suite is ``tests/fuzz``; the page's own readers run the same hostile values through jest.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import time

from tests.fuzz.__main__ import report as print_findings
from tests.fuzz.suite import Result, run_cases, shares
from tests.fuzz.worker import MEMORY_BYTES, SECONDS

from .report import ROOT, Measured, Row, benchmark, write_results

__all__ = ["fuzz"]

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
        rows = [*(_row(name, result) for name, result in results.items()), *page.values()]
        note = f"{time.monotonic() - began:.0f} s, seed {seed}"
        rows.insert(0, Row("cases in all", sum(row.value for row in rows), "cases", note=note))
        write_results("fuzz", "Hostile inputs", rows, how=how, quick=options.quick)
    print_findings(results, seed)
    return Measured(rows, how)


def _row(name: str, result: Result) -> Row:
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
