"""What a way of training costs a step, by a coin that is tossed for each: such steps lie side by side, so that a machine which is slow for a while is slow for both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .common import UNDECIDED, Row, verdict

__all__ = ["Tossed", "tossed"]

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
        cost, low, high = (100 * (each + aside) for each in (self.cost, self.low, self.high))
        met = verdict(low, high, most)
        undecided = f"{UNDECIDED} · " if met is None and most is not None else ""
        note = f"{undecided}elapsed {100 * self.cost:.2f} %, processor time aside {100 * aside:.2f} %; a step of {1e3 * self.step:.0f} ms"
        target = "" if most is None else f"≤ {most} %"
        return Row(title, cost, "% of a step", low, high, target, met, note)


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
