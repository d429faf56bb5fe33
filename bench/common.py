"""What a figure is: ratios of what was measured side by side, shares, what a step costs; and a benchmark, a function whose rows become a file of results and a part of their page.

What a way of training costs a step is found by a coin that is tossed for each: such steps lie side by side, so that a machine which is slow for a while is slow for both.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from glob import glob
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    *("Measured", "RESULTS", "ROOT", "Ratio", "Row", "Tossed", "UNDECIDED", "benchmark", "cost", "divided"),
    *("in_turns", "judged", "machine_facts", "percentile", "processor_seconds", "ratio", "rendered", "share"),
    *("timed", "tossed", "trimmed_mean", "typical", "verdict", "wilson", "worst", "write_results"),
]


@dataclass(frozen=True)
class Ratio:
    """A quotient of two means with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def ratio(
    above: Sequence[float],
    below: Sequence[float] | None = None,
    *,
    middle: Callable[[Sequence[float]], float] = statistics.fmean,
    paired: bool = True,
) -> Ratio:
    """Return ``middle(above) / middle(below)`` with a 95 % percentile-bootstrap interval.

    Parameters
    ----------
    above, below : sequence of float
        One figure per block of the run; without ``below``, quotients of one block over another.
    middle : callable
        What stands for a sequence: the mean, or a median where blocks meet other work on the machine.
    paired : bool
        Whether ``above[i]`` and ``below[i]`` were measured next to each other; pairs are then resampled as pairs.

    Raises
    ------
    ValueError
        When there are fewer than three figures a side, or pairs that do not match.
    """
    below = [1.0] * len(above) if below is None else below
    if min(len(above), len(below)) < 3 or (paired and len(above) != len(below)):
        raise ValueError(
            f"Expected at least three matching figures a side, got {len(above)} and {len(below)}."
        )
    rng = random.Random(0)
    values = []
    for _ in range(4000):
        chosen = rng.choices(range(len(above)), k=len(above))
        other = chosen if paired else rng.choices(range(len(below)), k=len(below))
        values.append(middle([above[i] for i in chosen]) / middle([below[i] for i in other]))
    return Ratio(middle(above) / middle(below), percentile(values, 2.5), percentile(values, 97.5))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile by linear interpolation between the two nearest figures."""
    return float(np.percentile(values, percent))


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without the smallest and largest tenth."""
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    z, p = 1.96, hits / count
    middle = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return middle - half, middle + half


def timed(step: Callable[[], object], count: int = 1) -> float:
    """Return the seconds that a call takes, of several in a row."""
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count


def in_turns(
    ways: Mapping[str, Callable[[], Any]], rounds: int, warm: int = 0, seed: int = 0
) -> dict[str, list[Any]]:
    """Call all ways in random order, round after round, and return what each gave; the first ``warm`` rounds do not count."""
    order, found = random.Random(seed), {name: list[Any]() for name in ways}
    for number in range(-warm, rounds):
        for name in order.sample(list(ways), len(ways)):
            one = ways[name]()
            if number >= 0:
                found[name].append(one)
    return found


def processor_seconds(*tasks: str) -> float:
    """Return what threads, folders such as ``/proc/7/task/*``, have had of a processor; those count that have not ended."""
    spent = 0
    for task in [each for pattern in tasks for each in glob(pattern)]:
        try:
            spent += int(Path(task, "schedstat").read_text().split()[0])
        except OSError:
            continue
    return spent * 1e-9


_STRETCH = 8
_RESAMPLES = 1000


@dataclass(frozen=True)
class Tossed:
    """What a step pays, as parts of a step that does not.

    Attributes
    ----------
    cost, low, high : float
        Elapsed time: of the step itself and of the one after it together, with its 95 % interval.
    aside : tuple of float
        What is counted by itself, such as processor time of others, beyond that of a step that does not pay, whenever it was taken.
    step : float
        Median of all steps, s.
    """

    cost: float
    low: float
    high: float
    aside: tuple[float, ...]
    step: float

    def over(self, aside: float) -> Ratio:
        """Return a step that pays over one that does not, with a part of a step that is added because others work later."""
        return Ratio(*(1 + each + aside for each in (self.cost, self.low, self.high)))


def tossed(step: Callable[[bool], object], aside: Callable[[], Sequence[float]], steps: int) -> Tossed:
    """Train so many steps, of which half pay, by chance.

    The logarithm of a step's time is explained by whether it paid and whether the one before it did, in stretches of 8 steps that each have their own level, with Huber's weights (residuals beyond 1.5
    standard deviations count less). The interval is of a bootstrap over stretches.

    Parameters
    ----------
    step : callable
        Takes a step, which pays where its argument says so.
    aside : callable
        Gives the seconds that are counted by themselves, so far.
    steps : int
        How many are timed; others before them are not.
    """
    random = np.random.default_rng(0)

    def train(pays: NDArray[np.bool_]) -> tuple[list[float], NDArray[np.float64]]:
        before = np.array(aside())
        took = [timed(lambda pay=each: step(pay)) for each in pays.tolist()]
        return took, np.array(aside()) - before

    train(random.random(min(64, max(2, steps // 4))) < 0.5)
    paid = random.random(steps) < 0.5
    took, spent = train(paid)
    resting = max(1, steps // 8)
    more = spent - train(np.zeros(resting, bool))[1] / resting * steps
    middle = float(np.median(took))
    times, on = np.log(took), paid.astype(float)
    stretches = range((len(times) - 1) // _STRETCH)
    cost = _cost(times, on, stretches)
    again = [_cost(times, on, random.choice(len(stretches), len(stretches))) for _ in range(_RESAMPLES)]
    low, high = np.percentile(again, [2.5, 97.5])
    parts = more / max(1, int(paid.sum())) / middle
    return Tossed(cost, float(low), float(high), tuple(parts.tolist()), middle)


def _cost(
    times: NDArray[np.float64], on: NDArray[np.float64], stretches: Sequence[int] | NDArray[Any]
) -> float:
    at = np.asarray(stretches)[:, None] * _STRETCH + np.arange(1, _STRETCH + 1)
    y, own, before = times[at], on[at], on[at - 1]
    y = (y - np.median(y, axis=1, keepdims=True)).ravel()
    x = np.stack(
        [*((each - each.mean(axis=1, keepdims=True)).ravel() for each in (own, before)), np.ones(y.size)],
        axis=1,
    )
    weights = np.ones(y.size)
    for _ in range(8):
        found = np.linalg.lstsq(x * weights[:, None], y * weights, rcond=None)[0]
        left = np.abs(y - x @ found)
        weights = np.sqrt(np.minimum(1, 1.5 * 1.4826 * np.median(left) / np.maximum(left, 1e-12)))
    return float(np.expm1(found[0] + found[1]))


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
        By name: default, what it is with ``--quick`` where that is another one, and a text. A type stands for what has no default.
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
        if callable(default):
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


def share(what: str, hits: int, count: int, target: str = "") -> Row:
    """Return the line of a share in per cent, with Wilson's interval, and its target, such as ``≥ 95``."""
    low, high = (100 * end for end in wilson(hits, count))
    return judged(what, 100 * hits / max(count, 1), "%", target, f"{hits} of {count}", low=low, high=high)


def machine_facts() -> dict[str, Any]:
    """Return what a reader must know about the machine, and nothing that names it or its user."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
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

    Missed targets are written as they are. ``how`` it was measured is one or two sentences; a ``quick`` run proves that the benchmark works and nothing else; ``facts`` stand beside those of the machine.
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
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None
