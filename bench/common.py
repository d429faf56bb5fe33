"""Figures with an interval: ratios of what was measured side by side, shares, and what a step costs.

What a way of training costs a step is found by a coin that is tossed for each: such steps lie side by side, so that a machine which is slow for a while is slow for both.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    *("Ratio", "Tossed", "in_turns", "percentile", "processor_seconds", "ratio", "timed", "tossed"),
    *("trimmed_mean", "wilson"),
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
    resamples: int = 4000,
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
    resamples : int
        How often.

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
    for _ in range(resamples):
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

    def over(self, aside: float) -> Ratio:
        """Return a step that pays over one that does not, with a part of a step that is added because others work later."""
        return Ratio(*(1 + each + aside for each in (self.cost, self.low, self.high)))


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
        before = aside()
        took = [timed(lambda pay=each: step(pay)) for each in pays.tolist()]
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
