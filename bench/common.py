"""What the benchmarks share: ratios with an interval, facts about the machine, and the files that results go into.

What a way of training costs a step, by a coin that is tossed for each: such steps lie side by side, so that a machine which is slow for a while is slow for both.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "RESULTS",
    "Ratio",
    "Row",
    "Tossed",
    "UNDECIDED",
    "asked",
    "cost",
    "judged",
    "machine_facts",
    "percentile",
    "processor_seconds",
    "ratio",
    "rendered",
    "report",
    "run_processes",
    "share",
    "tossed",
    "trimmed_mean",
    "verdict",
    "wilson",
    "write_results",
]


RESULTS = Path(__file__).parent / "results"
UNDECIDED = "**undecided**: the interval holds the target"
_BEGAN = os.getloadavg()[0]
_SIGNS = {"≤": operator.le, "<": operator.lt, "≥": operator.ge, ">": operator.gt}
_PACKAGES = ("megalens", "torch", "pyarrow", "websockets", "jupyterlab", "duckdb", "numpy")


@dataclass(frozen=True)
class Ratio:
    """A quotient of two means with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the ratio as text, such as ``0.93 (0.91 to 0.95)``."""
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


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
    """Return the line of a figure that is held against its target, such as ``≤ 1``; by another figure than itself, such as an end of its interval, where one is given."""
    sign, bound, *_ = target.replace(",", "").split()
    met = bool(_SIGNS[sign](value if by is None else by, float(bound)))
    return Row(what, value, unit, low, high, target, met, note, extra)


def asked(
    doc: str | None, arguments: Sequence[str] | None, quick: str, **options: tuple[Any, str]
) -> argparse.Namespace:
    """Read the arguments of a benchmark: ``--quick``, and others by name, each with its default, or its type where it has none, and what it is."""
    name = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(prog=f"python -m {name.name if name else 'bench'}", description=doc)
    for option, (default, text) in options.items():
        given: dict[str, Any] = {"type": default}
        if default is bool:
            given = {"action": "store_true"}
        elif not callable(default):
            given, text = {"type": type(default), "default": default}, f"{text} (%(default)s)"
        parser.add_argument(f"--{option.replace('_', '-')}", **given, help=text)
    parser.add_argument("--quick", action="store_true", help=f"{quick}: shows that it works")
    return parser.parse_args(arguments)


def ratio(
    above: Sequence[float],
    below: Sequence[float],
    *,
    middle: Callable[[Sequence[float]], float] = statistics.fmean,
    paired: bool = True,
    resamples: int = 4000,
    seed: int = 0,
) -> Ratio:
    """Return ``middle(above) / middle(below)`` with a 95 % percentile-bootstrap interval.

    Parameters
    ----------
    above, below : sequence of float
        One figure per block of the run.
    middle : callable
        What stands for a sequence: the mean, or a median where blocks meet other work on the machine.
    paired : bool
        Whether ``above[i]`` and ``below[i]`` were measured next to each other; pairs are then resampled as pairs.
    resamples, seed : int
        How often, and from which random numbers.

    Raises
    ------
    ValueError
        When there are fewer than three figures a side, or pairs that do not match.
    """
    if min(len(above), len(below)) < 3 or (paired and len(above) != len(below)):
        raise ValueError(
            f"Expected at least three matching figures a side, got {len(above)} and {len(below)}."
        )
    rng = random.Random(seed)
    values = []
    for _ in range(resamples):
        chosen = rng.choices(range(len(above)), k=len(above))
        other = chosen if paired else rng.choices(range(len(below)), k=len(below))
        values.append(middle([above[i] for i in chosen]) / middle([below[i] for i in other]))
    return Ratio(middle(above) / middle(below), percentile(values, 2.5), percentile(values, 97.5))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile by linear interpolation between the two nearest figures."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


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


def report(name: str, title: str, rows: Sequence[Row], *, how: str, **more: Any) -> Path:
    """Write results as ``write_results`` does, with how busy the machine was before, and print them."""
    load = f"Before it began, {_BEGAN:.1f} other processes on average wanted a processor."
    page = write_results(name, title, rows, how=f"{how} {load}", **more)
    print(rendered(name))
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


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean without the smallest and largest tenth."""
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def processor_seconds(task: str) -> float:
    """Return what a thread, a folder such as ``/proc/7/task/8``, has had of a processor; 0 where it has ended."""
    try:
        return int(Path(task, "schedstat").read_text().split()[0]) * 1e-9
    except OSError:
        return 0.0


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
    interval: Callable[[int, int], tuple[float, float]] | None = None,
) -> Row:
    """Return the line of a share in per cent, with Wilson's interval or another, and its target, such as ``≥ 95``."""
    low, high = (100 * end for end in (interval or wilson)(hits, count))
    value, note = 100 * hits / max(count, 1), f"{hits} of {count}"
    if target:
        return judged(what, value, "%", target, note, low=low, high=high)
    return Row(what, value, "%", low, high, note=note)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    z, p = 1.96, hits / count
    middle = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return middle - half, middle + half


def run_processes(module: str, job: object, world: int, folder: Path) -> Any:
    """Run a module in processes that are connected as a launcher does, and return what the first one writes.

    Parameters
    ----------
    module : str
        Takes the file of the job and the file to write as arguments.
    job : object
        Becomes JSON.
    world : int
        How many processes.
    folder : Path
        For both files.
    """
    asked, out = folder / "job.json", folder / "found.json"
    asked.write_text(json.dumps(job))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(asked), str(out)],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
            cwd=RESULTS.parents[1],
        )
        for rank in range(world)
    ]
    codes = [each.wait() for each in processes]
    if any(codes):
        # A figure of what is left would be of another training.
        raise SystemExit(f"A process of {module} ended with {codes}.")
    return json.loads(out.read_text())


_STRETCH = 8
_RESAMPLES = 1000


@dataclass(frozen=True)
class Tossed:
    """What a step pays, as parts of a step that does not.

    Attributes
    ----------
    cost, low, high : float
        Elapsed time: of the step itself and of the one after it together, with its 95 % interval.
    processor : float
        Processor time aside of the training beyond that of a step that does not pay, wherever and whenever it was taken.
    step : float
        Median of all steps, s.
    """

    cost: float
    low: float
    high: float
    processor: float
    step: float

    def row(self, title: str, most: float | None, aside: float) -> Row:
        """Return the line of a table, with a part of a step that is added because others work later; ``most`` is the target in per cent."""
        found = Ratio(*(1 + each + aside for each in (self.cost, self.low, self.high)))
        note = f"elapsed {100 * self.cost:.2f} %, processor time aside {100 * aside:.2f} %; a step of {1e3 * self.step:.0f} ms"
        return cost(title, found, most, note)


def tossed(step: Callable[[bool], object], aside: Callable[[], float], steps: int, first: int = 64) -> Tossed:
    """Train so many steps, of which half pay, by chance.

    The logarithm of a step's time is explained by whether it paid and whether the one before it did, in stretches of 8 steps that each have their own level, with Huber's weights (residuals beyond 1.5
    standard deviations count less). The interval is of a bootstrap over stretches.

    Parameters
    ----------
    step : callable
        Takes a step, which pays where its argument says so.
    aside : callable
        Gives the seconds of a processor that producer, hub and the like have had so far.
    steps : int
        How many are timed.
    first : int
        Steps before them, which are not.
    """
    random = np.random.default_rng(0)

    def train(pays: NDArray[np.bool_]) -> tuple[list[float], float]:
        took: list[float] = []
        before = aside()
        for each in pays.tolist():
            began = time.perf_counter()
            step(each)
            took.append(time.perf_counter() - began)
        return took, aside() - before

    train(random.random(first) < 0.5)
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
    return Tossed(cost, float(low), float(high), more / int(paid.sum()) / middle, middle)


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
