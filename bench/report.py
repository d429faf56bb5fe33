"""What a benchmark is: a function that measures, with options, whose rows become a file of results and a part of their page."""

from __future__ import annotations

import argparse
import json
import operator
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from .common import Ratio, wilson

__all__ = [
    *("Measured", "RESULTS", "ROOT", "Row", "UNDECIDED", "benchmark", "cost", "divided", "judged"),
    *("machine_facts", "rendered", "share", "typical", "verdict", "worst", "write_results"),
]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
UNDECIDED = "**undecided**: the interval holds the target"
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "≤": operator.le,
    "<": operator.lt,
    "≥": operator.ge,
    ">": operator.gt,
    "±": lambda value, bound: abs(value) <= bound,
}
_PACKAGES = ("megalens", "torch", "pyarrow", "websockets", "jupyterlab", "duckdb", "numpy")


@dataclass(frozen=True)
class Row:
    """One line of a result table."""

    what: str
    value: float
    unit: str
    low: float | None = None
    """Lower end of the 95 % interval, where there is one."""
    high: float | None = None
    target: str = ""
    """What was asked for, as text such as ``≤ 1``."""
    met: bool | None = None
    """Whether the target was met; None where there is none."""
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further figures, for the JSON only."""


class Measured(NamedTuple):
    """What a benchmark found."""

    rows: Sequence[Row]
    how: str
    """One or two sentences: how it was measured."""
    facts: dict[str, Any] = {}  # noqa: RUF012
    """Further facts beside those of the machine."""


def benchmark(
    title: str, quick: str, **options: tuple[Any, ...]
) -> Callable[[Callable[[argparse.Namespace], Measured | None]], Callable[..., Path | None]]:
    """Make a function a benchmark of its name: with arguments, and results that are written and printed.

    It is called with the options and ``folder``, an empty folder of its own, in which the hubs that it starts write down where they are.

    Parameters
    ----------
    title : str
        The heading of its results.
    quick : str
        What ``--quick`` measures, which shows that it works and nothing else.
    **options : tuple
        By name: default, what it is with ``--quick`` where that is another one, and a text. A type stands for what has no default, ``bool`` for what is or is not asked for.
    """

    def made(measure: Callable[[argparse.Namespace], Measured | None]) -> Callable[..., Path | None]:
        name = measure.__name__

        @wraps(measure)
        def run(arguments: Sequence[str] | None = None) -> Path | None:
            given = _asked(measure.__doc__, arguments, name, quick, options)
            load = os.getloadavg()[0]
            # A hub may still close its recording.
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder, "hubs"))
                given.folder = Path(folder)
                found = measure(given)
            if found is None:
                return None
            busy = f"Before it began, {load:.1f} other processes on average wanted a processor."
            page = write_results(
                name, title, found.rows, how=f"{found.how} {busy}", quick=given.quick, facts=found.facts
            )
            print(rendered(name))
            return page

        return run

    return made


def _asked(
    doc: str | None,
    arguments: Sequence[str] | None,
    name: str,
    quick: str,
    options: dict[str, tuple[Any, ...]],
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=doc)
    for option, (default, *_, text) in options.items():
        flag = f"--{option.replace('_', '-')}"
        if default is bool:
            parser.add_argument(flag, action="store_true", help=text)
        elif callable(default):
            parser.add_argument(flag, type=default, help=text)
        else:
            parser.add_argument(flag, type=type(default), help=f"{text} ({default})")
    parser.add_argument("--quick", action="store_true", help=f"{quick}: shows that it works")
    given = parser.parse_args(arguments)
    for option, (default, *others, _) in options.items():
        if getattr(given, option) is None and not callable(default):
            setattr(given, option, others[0] if given.quick and others else default)
    return given


def judged(
    what: str,
    value: float,
    unit: str,
    target: str,
    note: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    by: float | None = None,
    **extra: Any,
) -> Row:
    """Return the line of a figure that is held against its target, such as ``≤ 1``, or ``0`` for no other one; by another figure than itself, such as an end of its interval, where one is given.

    Without a target it is a line like any other.
    """
    met = None
    if target:
        words = target.replace(",", "").split()
        *sign, bound = words[:2] if words[0] in _SIGNS else words[:1]
        holds = _SIGNS[sign[0]] if sign else operator.eq
        met = bool(holds(value if by is None else by, float(bound)))
    return Row(what, value, unit, low, high, target, met, note, extra)


def divided(
    what: str,
    found: Ratio,
    target: str = "",
    note: str = "",
    *,
    unit: str = "×",
    by: str = "value",
    **extra: Any,
) -> Row:
    """Return the line of a ratio, which is held against its target by its ``value``, or its ``low`` or ``high`` end; by ``both`` it is undecided where the interval holds the target."""
    row = judged(
        what,
        found.value,
        unit,
        target,
        note,
        low=found.low,
        high=found.high,
        by=getattr(found, by, None),
        **extra,
    )
    if by == "both":
        met = verdict(found.low, found.high, float(target.split()[1]))
        row = replace(row, met=met, note=UNDECIDED if met is None else note)
    return row


def typical(
    what: str, values: Sequence[float], unit: str, target: str = "", note: str = "", **extra: Any
) -> Row:
    """Return the line of a median, with the least and most in the place of an interval."""
    return judged(
        what, statistics.median(values), unit, target, note, low=min(values), high=max(values), **extra
    )


def worst(what: str, seconds: Sequence[float], target: str, note: str = "") -> Row:
    """Return the line of the longest time, with the median beside it."""
    middle = f"median {statistics.median(seconds):.2f} s"
    return judged(what, max(seconds), "s", target, f"{middle}; {note}" if note else middle)


def verdict(low: float, high: float, most: float | None) -> bool | None:
    """Return whether a target was met, or None where there is none or the interval holds both answers."""
    return None if most is None or low <= most < high else high <= most


def cost(
    title: str, found: Ratio, most: float | None, *notes: str, unit: str = "% of a step", spread: int = 1
) -> Row:
    """Return the line of what something costs: a time over that without it, less one, spread over steps; ``most`` is the target in per cent."""
    middle, low, high = (100 * (value - 1) / spread for value in (found.value, found.low, found.high))
    met = verdict(low, high, most)
    undecided = [UNDECIDED] if met is None and most is not None else []
    target = "" if most is None else f"≤ {most} %"
    return Row(title, middle, unit, low, high, target, met, " · ".join([*undecided, *notes]))


def share(
    what: str,
    hits: int,
    count: int,
    target: str = "",
    interval: Callable[[int, int], tuple[float, float]] = wilson,
) -> Row:
    """Return the line of a share in per cent, with Wilson's interval or another, and its target, such as ``≥ 95``."""
    low, high = (100 * end for end in interval(hits, count))
    return judged(what, 100 * hits / max(count, 1), "%", target, f"{hits} of {count}", low=low, high=high)


def machine_facts() -> dict[str, Any]:
    """Return what a reader must know about the machine, and nothing that names it or its user."""
    return {
        "processor": _processor(),
        "cores": _cores(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def write_results(
    name: str,
    title: str,
    rows: Sequence[Row],
    *,
    how: str,
    quick: bool = False,
    facts: dict[str, Any] | None = None,
) -> Path:
    """Write ``results/<name>.json`` and the page of all results, ``results/README.md``; return the page.

    Parameters
    ----------
    name, title : str
        File name without ending, and the heading.
    rows : sequence of Row
        The figures. Missed targets are written as they are.
    how : str
        One or two sentences: how it was measured.
    quick : bool
        Whether this was a short run, which proves that the benchmark works and nothing else.
    facts : dict, optional
        Further facts beside those of the machine.
    """
    RESULTS.mkdir(exist_ok=True)
    body = {
        "name": name,
        "title": title,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "quick": quick,
        "how": how,
        "machine": machine_facts() | (facts or {}),
        "rows": [asdict(row) for row in rows],
    }
    text = json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")
    page = RESULTS / "README.md"
    sections = [rendered(each.stem) for each in sorted(RESULTS.glob("*.json"))]
    page.write_text("\n".join(["# Measured claims\n", *sections]), encoding="utf-8")
    return page


def rendered(name: str) -> str:
    """Return the table of what was measured last, as Markdown."""
    body = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    machine = body["machine"]
    lines = [f"## {body['name']}", "", f"**{body['title']}.** {body['how']}", ""]
    if body["quick"]:
        lines += ["A quick run: it shows that the benchmark works; its figures prove nothing.", ""]
    lines += ["| what | figure | 95 % interval | target | |", "|---|---|---|---|---|"]
    for row in (Row(**each) for each in body["rows"]):
        interval = "" if row.low is None or row.high is None else f"{row.low:.3g} to {row.high:.3g}"
        verdict = {True: "met", False: "**missed**", None: ""}[row.met]
        closing = " · ".join(part for part in (verdict, row.note) if part)
        lines.append(f"| {row.what} | {row.value:.3g} {row.unit} | {interval} | {row.target} | {closing} |")
    packages = ", ".join(f"{name} {found}" for name, found in machine["packages"].items())
    lines += [
        "",
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}; {packages}. {body['date']}.",
    ]
    return "\n".join(lines) + "\n"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
