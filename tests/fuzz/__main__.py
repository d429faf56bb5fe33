"""``python -m tests.fuzz [--cases N] [SURFACE …]`` runs cases; ``--case SURFACE:CASE`` runs one again and shows it."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from tests.fuzz.suite import Finding, Result, run_cases, run_inputs, shares
from tests.fuzz.surface import CATALOGUE

__all__ = ["main", "report"]

_FOLDER = Path(__file__).parents[2] / ".make" / "fuzz"


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; the exit code says whether anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("surfaces", nargs="*", metavar="SURFACE", help=f"any of {', '.join(CATALOGUE)}")
    parser.add_argument("--cases", type=int, default=20_000, metavar="N", help="in all (default: 20000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument("--case", metavar="SURFACE:CASE", help="run this one case and show it")
    parser.add_argument("--every-byte", action="store_true", help="change each byte of small recordings")
    options = parser.parse_args(arguments)
    if options.every_byte:
        from tests.fuzz.surfaces.changed_byte import all_changes

        results = run_inputs({"changed_byte": all_changes()}, workers=options.workers)
    elif options.case:
        name, _, number = options.case.rpartition(":")
        results = run_cases({name: 1}, first=int(number), workers=1)
    else:
        results = run_cases(
            shares(options.cases, options.surfaces), first=options.first, workers=options.workers
        )
    report(results)
    return 1 if any(result.findings for result in results.values()) else 0


def report(results: dict[str, Result]) -> None:
    """Print what came of each surface, every finding with its input, and keep the findings under ``.make/fuzz``."""
    for result in results.values():
        for finding in result.findings.values():
            print(f"\n--- {finding.surface}:{finding.case}, {finding.count} such: {finding.place}")
            print(_visible(finding.trace[-2500:]))
            print(f"input: {json.dumps(finding.input)[:600]}")
            print(f"again: python -m tests.fuzz --case {finding.surface}:{finding.case}")
            _keep(finding)
    for name, result in results.items():
        print(
            f"{name:12} {result.cases:7} cases: {result.refused} refused, {result.accepted} accepted, "
            f"{sum(found.count for found in result.findings.values())} found; "
            f"at most {result.seconds:.2f} s, {result.bytes >> 20} MB",
            flush=True,
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
