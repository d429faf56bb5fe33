"""Run every benchmark and print its table: ``python -m bench [--quick] [NAME …]``; ``--list`` says what each claims.

Exit codes: 0 all ran (met or missed), 1 one of them could not run, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
NAMES = (
    "tracer",
    "watching",
    "statistics",
    "monitor_faults",
    "monitor_cost",
    "generation",
    "long_text",
    "compiled",
    "gpu",
    "token_latency",
    "timeline",
    "timeline_overlapped",
    "timeline_cost",
    "timeline_real",
    "trace_reading",
    "wire",
    "moments_grouping",
    "projection",
    "browser",
    "attention",
    "hub_load",
    "megatron",
    "moments_kernel",
    "opening",
    "large_runs",
    "live_moments",
    "long_recordings",
    "sealing",
    "engine",
    "scale",
    "explorer",
    "rendering",
    "marimo",
    "pictures",
    "pipeline",
    "split",
    "imports",
    "soak",
    "fuzz",
)


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the performance claims.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}; all when absent"
    )
    parser.add_argument("--quick", action="store_true", help="short runs that show that each benchmark works")
    parser.add_argument(
        "--list", action="store_true", help="say what each measures and claims, and run nothing"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(NAMES)}")
    if options.list:
        print("\n".join(line for name in options.names or NAMES for line in described(name)))
        return 0
    failed = []
    for name in options.names or NAMES:
        began = time.monotonic()
        # Each in a process of its own: none inherits another's threads, caches or environment.
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{name}", *(["--quick"] if options.quick else [])], cwd=ROOT
        )
        print(f"{name}: exit code {done.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
    for name in failed:
        print(f"failed: the benchmark {name} could not run", file=sys.stderr)
    return 1 if failed else 0


def described(name: str) -> list[str]:
    """Say what a benchmark measures, and each of its figures that has a target, as it was measured last."""
    source = (ROOT / "bench" / f"{name}.py").read_text(encoding="utf-8")
    what = ast.get_docstring(ast.parse(source)) or ""
    lines = [f"{name}: {what.partition(': ``python -m')[0].partition(chr(10))[0].removesuffix('.')}."]
    results = ROOT / "bench" / "results" / f"{name}.json"
    rows = json.loads(results.read_text(encoding="utf-8"))["rows"] if results.is_file() else []
    for row in rows:
        if row["target"]:
            met = {True: "met", False: "missed", None: "undecided"}[row["met"]]
            lines.append(f"    {row['what']}: {row['target']} ({row['value']:.3g} {row['unit']}, {met})")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
