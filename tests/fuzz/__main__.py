"""``python -m tests.fuzz [--cases N] [--seconds N] [SURFACE …]`` runs cases that nobody ran before; ``--seed N`` the same ones again.

``--case SURFACE:CASE --seed N`` runs one again and shows it; without a seed one of those of ``make test``.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import sys
import time
from pathlib import Path

from tests.fuzz.suite import Finding, Result, run_cases, run_inputs, shares
from tests.fuzz.surface import CATALOGUE, every_byte

__all__ = ["main", "report"]

_ROUND = 4_000
_FOLDER = Path(__file__).parents[2] / ".make" / "fuzz"


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; the exit code says whether anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("surfaces", nargs="*", metavar="SURFACE", help=f"any of {', '.join(CATALOGUE)}")
    parser.add_argument("--cases", type=int, default=20_000, metavar="N", help="in all (default: 20000)")
    parser.add_argument("--seconds", type=float, metavar="N", help="go on for so long, whatever --cases says")
    parser.add_argument("--seed", type=int, metavar="N", help="of all cases (default: a new one, printed)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument("--case", metavar="SURFACE:CASE", help="run this one case and show it")
    parser.add_argument("--every-byte", action="store_true", help="change each byte of small files")
    options = parser.parse_args(arguments)
    if options.every_byte:
        changes = {
            name: some for name, some in every_byte().items() if name in (options.surfaces or CATALOGUE)
        }
        results = run_inputs(changes, workers=options.workers)
    elif options.case:
        name, _, number = options.case.rpartition(":")
        results = run_cases({name: 1}, first=int(number), workers=1, seed=options.seed)
    else:
        options.seed = secrets.randbelow(2**31) if options.seed is None else options.seed
        print(f"seed {options.seed}", flush=True)
        results = _run(options)
    report(results, options.seed)
    return 1 if any(result.findings for result in results.values()) else 0


def _run(options: argparse.Namespace) -> dict[str, Result]:
    """Run the cases of a seed: so many, or round after round until the time is over."""
    results: dict[str, Result] = {}
    first, end = options.first, time.monotonic() + (options.seconds or 0)
    while not results or time.monotonic() < end:
        cases = _ROUND if options.seconds else options.cases
        counts = shares(cases, options.surfaces)
        for name, result in run_cases(
            counts, first=first, workers=options.workers, seed=options.seed
        ).items():
            results.setdefault(name, Result()).join(result)
        first += max(counts.values())
    return results


def report(results: dict[str, Result], seed: int | None = None) -> None:
    """Print what came of each surface, every finding with its input, and keep the findings under ``.make/fuzz``."""
    for result in results.values():
        for finding in result.findings.values():
            print(f"\n--- {finding.surface}:{finding.case}, {finding.count} such: {finding.place}")
            print(_visible(finding.trace[-2500:]))
            print(f"input: {json.dumps(finding.input)[:600]}")
            of = "" if seed is None else f" --seed {seed}"
            print(f"again: python -m tests.fuzz --case {finding.surface}:{finding.case}{of}")
            _keep(finding)
    for name, result in results.items():
        print(
            f"{name:16} {result.cases:7} cases: {result.refused} refused, {result.accepted} accepted, "
            f"{sum(found.count for found in result.findings.values())} found; "
            f"at most {result.seconds:.2f} s, {result.bytes >> 20} MB",
            flush=True,
        )
    if len(results) > 1:
        cases = sum(result.cases for result in results.values())
        print(
            f"{'in all':16} {cases:7} cases: {sum(len(each.findings) for each in results.values())} kinds found"
        )


def _keep(finding: Finding) -> None:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    body = {"was": finding.place, "trace": finding.trace, "input": finding.input}
    (_FOLDER / f"{finding.surface}-{finding.case}.json").write_text(json.dumps(body, indent=1) + "\n")


def _visible(text: str) -> str:
    """Return a text that no terminal obeys."""
    return re.sub(r"[^\n\x20-\x7e]", lambda found: f"\\u{ord(found[0]):04x}", text)


if __name__ == "__main__":
    sys.exit(main())
