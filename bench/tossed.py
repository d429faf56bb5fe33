"""What statistics cost a step, by a coin that is tossed for each: such steps lie side by side, so that a machine which is slow for a while is slow for both."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from megalens.demo import Trainer
from megalens.tracer.moments.intervals import Intervals
from megalens.tracer.moments.logger import StatisticsLogger

from .statistics import seconds_aside

__all__ = ["Tossed", "tossed"]

_STRETCH = 8
_RESAMPLES = 1000


@dataclass(frozen=True)
class Tossed:
    """What a step pays where it is measured, as parts of a step that is not.

    Attributes
    ----------
    cost, low, high : float
        Elapsed time: of the step itself and of the one after it together, with its 95 % interval.
    processor : float
        Processor time of the producer thread and of the hub beyond that of a step that is not measured, wherever and whenever they took it.
    step : float
        Median of all steps, s.
    """

    cost: float
    low: float
    high: float
    processor: float
    step: float


def tossed(trainer: Trainer, logger: StatisticsLogger, steps: int) -> Tossed:
    """Train so many steps, of which half, by chance, have the logger's statistics.

    The logarithm of a step's time is explained by whether it was measured and whether the one before it was, in stretches of 8 steps that each have their own level, with Huber's weights (residuals beyond 1.5
    standard deviations count less). The interval is of a bootstrap over stretches.
    """
    tracer = logger.tracer
    random = np.random.default_rng(0)
    coin = random.random(1 << 20) < 0.5
    resting = np.zeros(1 << 20, bool)
    usual = logger.intervals

    def train(shown: NDArray[np.bool_], count: int) -> tuple[list[float], list[bool], float]:
        took: list[float] = []
        measured: list[bool] = []
        logger.intervals = _at_some(usual, shown, measured)
        before = sum(seconds_aside(tracer))
        for _ in range(count):
            began = time.perf_counter()
            trainer.step()
            took.append(time.perf_counter() - began)
        return took, measured, sum(seconds_aside(tracer)) - before

    train(coin, 64)
    took, measured, spent = train(coin, steps)
    _, _, resting_spent = train(resting, max(1, steps // 8))
    more = spent - resting_spent / max(1, steps // 8) * steps
    step = float(np.median(took))
    times, on = np.log(took), np.array(measured, float)
    stretches = range((len(times) - 1) // _STRETCH)
    cost = _cost(times, on, stretches)
    again = [_cost(times, on, random.choice(len(stretches), len(stretches))) for _ in range(_RESAMPLES)]
    low, high = np.percentile(again, [2.5, 97.5])
    return Tossed(cost, float(low), float(high), more / sum(measured) / step, step)


def _at_some(usual: Intervals, shown: NDArray[np.bool_], asked: list[bool]) -> Intervals:
    """Return intervals that hold at the steps that are shown, and note of each step whether it is one."""

    class AtSome(Intervals):
        def due(self, step: int) -> frozenset[str]:
            asked.append(bool(shown[step]))
            return super().due(step) if shown[step] else frozenset()

    return AtSome(**asdict(usual))


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
