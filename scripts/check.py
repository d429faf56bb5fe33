"""Run every check of the project and end with one line, ``N passed, M failed``.

``python -m scripts.check all``, ``all timeline`` (the tests of one room or slice), ``fast`` (what the change asks for), ``fast --all``, or the names of single checks. A tool without a count of its own (a linter, a
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
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.picked import changed_files, of_rooms, picks

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
        Whether it has processes, sockets and time limits of its own. Suites run one at a time, the fast ones of Python beside those of the page. They often wait;
        what time they leave over goes, at the lowest priority, to the other checks.
    """

    name: str
    command: tuple[str, ...]
    limit: int = 900
    fast: bool = True
    suite: bool = False


# Much of the tests' time is waiting, all the more in those that are marked as slow. Jest alone would leave a core free.
PYTEST = (PYTHON, "-m", "pytest", "--durations", "10", "--forks")
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
    # What is shipped was compiled when it was set up, by the same rules.
    Check("tsc strict", ("tsc", "-p", "tsconfig.test.json")),
    Check("generated types", ("node", "scripts/generate-protocol.mjs", "--check")),
    Check("documentation", ("bash", "scripts/build-docs.sh"), fast=False),
    Check("example extension", ("npm", "run", "--silent", "build:example"), fast=False),
    Check("generated types, Python", (PYTHON, "-m", "scripts.message_types", "--check")),
    Check("golden fixtures", (PYTHON, "-m", "scripts.make_fixtures", "--check")),
    Check("figures of docs/costs.md", (PYTHON, "-m", "bench.costs", "--check")),
    Check("jest", JEST, 1200, fast=False, suite=True),
    Check(
        "jest, fast",
        (*JEST, "--testPathIgnorePatterns", "fuzz", "\\.slow\\."),
        600,
        suite=True,
    ),
    Check("pytest", (*PYTEST, "4"), 1800, fast=False, suite=True),
    Check(
        "pytest, fast",
        (*PYTEST, "2", "-m", "not slow", "--hypothesis-profile", "fast"),
        600,
        suite=True,
    ),
    Check(
        "views in a bare page",
        ("playwright", "test", "-c", "ui-tests/harness/playwright.config.ts"),
        900,
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
    # At the lowest priority it takes as long as the suites beside it leave over.
    Check("wheel in a clean venv", ("bash", "scripts/check-wheel.sh"), 3000, fast=False),
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
NAMED = (
    re.compile(r"^(?:FAILED|ERROR) (?P<name>tests/\S+(?: \S+\])?)", re.M),
    re.compile(r"^ +● (?P<name>.+ › .+)$", re.M),
    re.compile(r"^ +\d+\) (?P<name>.+ › .+?)(?: ─+)?$", re.M),
)
# The exit status of pytest where it collected no test.
NO_TESTS = 5
COLOR = re.compile(r"\x1b\[[0-9;]*m")
FAILED = re.compile(r"^(?:=*\s*|\s+)(\d+) failed", re.M)


def counted(output: str, code: int) -> tuple[int, int]:
    """Return tests passed and failed, from what a tool printed and how it ended."""
    passed = failed = 0
    for pattern in COUNTS:
        found = pattern.search(output)
        if found:
            passed = int(found["passed"])
            break
    else:
        passed = 1 if code == 0 else 0
    every = [int(number) for number in FAILED.findall(output)]
    errors = [int(n) for n in re.findall(r"(\d+) errors? in \d", output)]
    jest = re.search(r"^Tests:\s+(\d+) failed", output, re.M)
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


def named(output: str) -> list[str]:
    """Return the names of the tests that failed, from what suites printed."""
    return sorted({found["name"] for pattern in NAMED for found in pattern.finditer(output)})


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


def executed(check: Check) -> tuple[str, int]:
    """Run the tool of a check; return what it printed, without colours, and its exit status."""
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
    return COLOR.sub("", output), code


@dataclass(frozen=True)
class Outcome:
    """What came of a check: how many tests passed and failed, the names of the latter, and what the tool printed."""

    passed: int
    failed: int
    names: list[str]
    output: str


def run(check: Check) -> Outcome:
    """Run one check and print its line."""
    started = time.monotonic()
    output, code = executed(check)
    if check.name == "pytest, fast" and code == NO_TESTS:
        # All that was picked is slow.
        code = 0
    passed, failed = counted(output, code)
    if failed:
        print(output.rstrip()[-20_000:])
    seconds = time.monotonic() - started
    print(
        f"{'ok  ' if not failed else 'FAIL'} {check.name}: {passed} passed, {failed} failed in {seconds:.0f} s",
        flush=True,
    )
    return Outcome(passed, failed, (named(output) or [check.name]) if failed else [], output)


def chosen(arguments: list[str]) -> list[Check]:
    """Return the checks that arguments ask for.

    Raises
    ------
    SystemExit
        When one is no check, no room and no slice; says what there is.
    """
    what, *rest = arguments or ["all"]
    if what == "fast":
        fast = [check for check in CHECKS if check.fast]
        picked = None if "--all" in rest else picks(changed_files())
        if picked is None:
            return fast
        print(f"Picked by what changed: {_listed(picked)}. Everything: make test-fast ALL=1.", flush=True)
        return [_narrowed(check, picked) for check in fast if picked.get(check.name) != ()]
    if what == "all":
        whole = [check for check in CHECKS if not check.name.endswith(", fast")]
        if not rest:
            return whole
        suites = of_rooms(rest)
        return [_narrowed(check, suites) for check in whole if check.name in suites]
    named_checks = [check for check in CHECKS if check.name in arguments]
    if len(named_checks) != len(arguments):
        raise SystemExit("Checks are: " + "; ".join(check.name for check in CHECKS))
    return named_checks


def _narrowed(check: Check, picked: dict[str, tuple[str, ...]]) -> Check:
    return replace(check, command=(*check.command, *picked.get(check.name, ())))


def _listed(picked: dict[str, tuple[str, ...]]) -> str:
    return (
        "; ".join(
            f"{name} {' '.join(each[:6])}{' …' if len(each) > 6 else ''}"
            for name, each in picked.items()
            if each
        )
        or "no suite"
    )


def main(arguments: list[str]) -> int:
    """Run the checks that were asked for."""
    checks = chosen(arguments)
    started = time.monotonic()
    suites = [check for check in checks if check.suite]
    python = [check for check in suites if check.name == "pytest, fast"]
    # What is fast starts few processes, so that Python's tests and the page's share the cores. The others take them whole.
    lanes = (
        python,
        [each for each in suites if each not in python],
        [each for each in checks if not each.suite],
    )
    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        results = [
            outcome
            for lane in pool.map(lambda lane: [run(check) for check in lane], lanes)
            for outcome in lane
        ]
    passed, failed = sum(one.passed for one in results), sum(one.failed for one in results)
    print("slowest:")
    for seconds, name in slowest("\n".join(one.output for one in results)):
        print(f"  {seconds:5.1f} s  {name}")
    # Last, so that who sees only the end of a log sees them.
    for name in (name for one in results for name in one.names):
        print(f"failed: {name}")
    print(f"all suites in {time.monotonic() - started:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
