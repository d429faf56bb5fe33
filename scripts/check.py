"""Run every check of the project and end with one line, ``N passed, M failed``.

``python scripts/check.py all`` or ``fast``, or the names of single checks. A tool without a count of its own (a linter, a
type checker) counts as one. Output of a check is shown when it fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable


@dataclass(frozen=True)
class Check:
    """One tool run.

    Attributes
    ----------
    name : str
        What is printed.
    command : tuple of str
        Arguments, run from the root of the checkout.
    limit : int
        Seconds after which it counts as failed.
    fast : bool
        Whether ``make test-fast`` runs it.
    suite : bool
        Whether it has processes, sockets and time limits of its own: suites run one at a time. They often wait; what time they leave
        over goes, at the lowest priority, to the other checks.
    """

    name: str
    command: tuple[str, ...]
    limit: int = 900
    fast: bool = True
    suite: bool = False


# Most of the tests' time is waiting for processes to start. Jest alone would leave a core free.
BOTH_CORES = ("-n", "2", "--dist", "worksteal", "--durations", "10")
JEST = ("jest", "--forceExit", "--maxWorkers", "2")
# What these tools say of a file follows from that file and their settings alone, so that what has not changed is not looked at again.
KEPT = ("--cache", "--cache-strategy", "content", "--cache-location")
CHECKS = (
    Check("ruff format", ("ruff", "format", "--check", ".")),
    Check("ruff lint", ("ruff", "check", ".")),
    Check("mypy strict", ("mypy",)),
    Check("prettier", ("prettier", "--check", "--log-level", "warn", *KEPT, ".make/prettier", ".")),
    Check("eslint", ("eslint", *KEPT, ".make/eslint", ".")),
    Check("stylelint", ("stylelint", "style/**/*.css")),
    Check("tsc strict", ("tsc", "--noEmit")),
    Check("tsc strict, tests", ("tsc", "-p", "tsconfig.test.json")),
    Check("generated types", ("node", "scripts/generate-protocol.mjs", "--check")),
    Check("example extension", ("npm", "run", "--silent", "build:example"), fast=False),
    Check("generated types, Python", (PYTHON, "-m", "scripts.message_types", "--check")),
    Check("golden fixtures", (PYTHON, "-m", "scripts.make_fixtures", "--check")),
    Check("jest", JEST, 600, fast=False, suite=True),
    Check("jest, fast", (*JEST, "--testPathIgnorePatterns", "fuzz", "\\.slow\\."), 240, suite=True),
    Check("pytest", (PYTHON, "-m", "pytest", *BOTH_CORES), 1800, fast=False, suite=True),
    Check(
        "pytest, fast",
        (PYTHON, "-m", "pytest", *BOTH_CORES, "-m", "not slow", "--hypothesis-profile", "fast"),
        300,
        suite=True,
    ),
    Check(
        "views in a bare page",
        ("playwright", "test", "-c", "ui-tests/harness/playwright.config.ts"),
        300,
        fast=False,
        suite=True,
    ),
    Check(
        "JupyterLab in Chromium",
        ("playwright", "test", "-c", "ui-tests/playwright.config.ts"),
        1200,
        fast=False,
        suite=True,
    ),
    Check("wheel in a clean venv", ("bash", "scripts/check-wheel.sh"), fast=False),
)
COUNTS = (
    # jest, then pytest and Playwright.
    re.compile(r"^Tests:\s+(?:(?P<failed>\d+) failed, )?(?:\d+ \w+, )*?(?P<passed>\d+) passed", re.M),
    re.compile(r"^=*\s*(?:(?P<failed>\d+) failed, )?(?P<passed>\d+) passed", re.M),
    re.compile(r"^\s+(?P<passed>\d+) passed \(", re.M),
)
# A test of pytest, a file of jest, a test of Playwright.
TIMES = (
    re.compile(r"^(?P<seconds>[\d.]+)s (?:call|setup|teardown) +(?P<name>.+)$", re.M),
    re.compile(r"^PASS (?P<name>\S+) \((?P<seconds>[\d.]+) s\)$", re.M),
    re.compile(r"^ +(?:ok|✓) +\d+ (?P<name>.+) \((?P<seconds>[\d.]+)s\)$", re.M),
)
FAILED = re.compile(r"^(?:=*\s*|\s+)(\d+) failed", re.M)


def counted(output: str, code: int) -> tuple[int, int]:
    """Return tests passed and failed, from what a tool printed and how it ended."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    passed = failed = 0
    for pattern in COUNTS:
        found = pattern.search(plain)
        if found:
            passed = int(found["passed"])
            break
    else:
        passed = 1 if code == 0 else 0
    every = [int(number) for number in FAILED.findall(plain)]
    errors = [int(n) for n in re.findall(r"(\d+) errors? in \d", plain)]
    jest = re.search(r"^Tests:\s+(\d+) failed", plain, re.M)
    failed = max([0, *every, *errors, *([int(jest[1])] if jest else [])])
    if code != 0 and failed == 0:
        failed = 1
    if code == 0:
        failed = 0
    return passed, failed


def slowest(output: str, most: int = 10) -> list[tuple[float, str]]:
    """Return the tests that took longest, with their seconds, from what suites printed."""
    found = {(float(one["seconds"]), one["name"]) for pattern in TIMES for one in pattern.finditer(output)}
    return sorted(found, reverse=True)[:most]


def browser() -> str:
    """Return the path of the browser for the tests; scripts/ensure-browser.sh sees to it that there is one."""
    names = (
        os.environ.get("CHROMIUM"),
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    )
    return next((path for name in names if name and (path := shutil.which(name))), "/usr/bin/chromium")


def run(check: Check) -> tuple[int, int, str]:
    """Run one check and print its line; return how many tests passed and failed, and what it printed."""
    started = time.monotonic()
    environment = {
        **os.environ,
        "FORCE_COLOR": "0",
        "CI": os.environ.get("CI", "true"),
        "PYTHONPATH": str(ROOT),
    }
    # Without compiled files every process of every test compiles the package anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        (*(("nice", "-n", "19") if not check.suite else ()), *check.command),
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A group of its own can be ended as one. A session of its own would make its priority count for nothing on Linux.
        process_group=0,
    )
    try:
        output, _ = process.communicate(timeout=check.limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        output += f"\n{check.name} ran longer than {check.limit} s and was ended."
        code = 124
    passed, failed = counted(output, code)
    seconds = time.monotonic() - started
    flaky = re.search(r"^\s+(\d+) flaky((?:\n +\[.*)*)", re.sub(r"\x1b\[[0-9;]*m", "", output), re.M)
    passed += int(flaky[1]) if flaky else 0
    note = f", {flaky[1]} of them at the second try" if flaky else ""
    if flaky:
        print(f"At the second try:{flaky[2].rstrip()}")
    if failed:
        print(output.rstrip()[-20_000:])
    print(
        f"{'ok  ' if not failed else 'FAIL'} {check.name}: {passed} passed{note}, {failed} failed in {seconds:.0f} s",
        flush=True,
    )
    return passed, failed, output


def main(arguments: list[str]) -> int:
    """Run the checks that were asked for."""
    wanted = arguments or ["all"]
    if wanted == ["all"]:
        checks = [c for c in CHECKS if not c.name.endswith(", fast")]
    elif wanted == ["fast"]:
        checks = [c for c in CHECKS if c.fast]
    else:
        checks = [c for c in CHECKS if c.name in wanted]
        if len(checks) != len(wanted):
            print("Checks are: " + "; ".join(c.name for c in CHECKS), file=sys.stderr)
            return 2
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=1) as pool:
        beside = pool.map(run, [check for check in checks if not check.suite])
        results = [run(check) for check in checks if check.suite]
        results += beside
    passed, failed = (sum(result[column] for result in results) for column in (0, 1))
    print("slowest:")
    for seconds, name in slowest("\n".join(result[2] for result in results)):
        print(f"  {seconds:5.1f} s  {name}")
    print(f"all suites in {time.monotonic() - started:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
