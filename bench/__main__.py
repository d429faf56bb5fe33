"""Run benchmarks and print their tables: ``python -m bench [--quick] [NAME …]``, or ``NAME`` with options of its own; ``--list`` says what each claims.

Exit codes: 0 all ran (met or missed), 1 one of them could not run, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import subprocess
import sys
import time

from .common import RESULTS, ROOT

__all__ = ["NAMES", "main"]

_MODULES = {
    "tracer": ("tracer",),
    "compiled": ("compiled", "watching", "gpu"),
    "steps": ("statistics", "monitor_cost", "timeline_cost"),
    "megatron": ("megatron",),
    "kernels": ("moments_kernel", "moments_grouping", "projection"),
    "generation": ("generation", "token_latency", "long_text"),
    "faults": ("monitor_faults", "timeline_real", "fuzz"),
    "timeline": ("timeline", "timeline_overlapped"),
    "pipeline": ("pipeline", "split"),
    "hub_load": ("wire", "hub_load"),
    "recordings": ("sealing",),
    "opening": ("opening", "large_runs", "long_recordings", "trace_reading"),
    "scale": ("engine", "scale"),
    "live_page": ("live_moments", "browser", "rendering"),
    "views": ("attention", "explorer", "pictures", "marimo", "imports"),
    "soak": ("soak",),
}
NAMES = {name: module for module, names in _MODULES.items() for name in names}
"""The module of each benchmark."""


def main(arguments: list[str]) -> int:
    """Run what was asked for and return the exit code."""
    if arguments[:1] and arguments[0] in NAMES and not {*arguments[1:]} & {*NAMES, "--list"}:
        getattr(importlib.import_module(f"bench.{NAMES[arguments[0]]}"), arguments[0])(arguments[1:])
        return 0
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
        command = [sys.executable, "-m", "bench", name, *(["--quick"] if options.quick else [])]
        done = subprocess.run(command, cwd=ROOT)
        print(f"{name}: exit code {done.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
    for name in failed:
        print(f"failed: the benchmark {name} could not run", file=sys.stderr)
    return 1 if failed else 0


def described(name: str) -> list[str]:
    """Say what a benchmark measures, and each of its figures that has a target, as it was measured last."""
    source = ast.parse((ROOT / "bench" / f"{NAMES[name]}.py").read_text(encoding="utf-8"))
    functions = {each.name: each for each in source.body if isinstance(each, ast.FunctionDef)}
    lines = [f"{name}: {ast.get_docstring(functions[name])}"]
    results = RESULTS / f"{name}.json"
    rows = json.loads(results.read_text(encoding="utf-8"))["rows"] if results.is_file() else []
    for row in rows:
        if row["target"]:
            met = {True: "met", False: "missed", None: "undecided"}[row["met"]]
            lines.append(f"    {row['what']}: {row['target']} ({row['value']:.3g} {row['unit']}, {met})")
    return lines


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
