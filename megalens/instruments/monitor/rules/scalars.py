"""Rules over the numbers of the training loop: loss, gradient norm, learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..rule import Finding, Rule, number
from ..table import StepTable
from .values import THRESHOLD, off_level, relative_to


@dataclass(frozen=True)
class LossSpike(Rule):
    """Loss, gradient norm or learning rate is suddenly far off, or the loss stays above what it was: a broken
    or repeated batch, other data, a schedule that begins anew, or the first sign of a divergence.
    """

    name = "loss"
    title = "Loss spike"
    threshold: float = number("Threshold", THRESHOLD, 2, 1000, 10)
    factor: float = number(
        "Factor", "And at least how many times as large or small the loss must be.", 1.01, 1e6, 1.25
    )
    rate_factor: float = number(
        "Rate factor",
        "How many times the learning rate that its course leads to it may be at once.",
        1.01,
        1e6,
        3,
    )

    def find(self, now: StepTable) -> Iterator[Finding]:
        layout = now.layout
        loss = layout.of("scalar") & layout.matching("loss")
        rate = layout.of("scalar") & layout.matching(RATE)
        norm = layout.of("scalar") & ~loss & ~rate
        off = off_level(now, "size", self.threshold, np.log2(self.factor))
        large = off_level(now, "size", self.threshold, _LARGE_NORM)
        rows = np.flatnonzero((loss & (off != 0)) | (norm & (large > 0)))
        if len(rows):
            yield relative_to(now, "size", "value", rows)
        yield from self._off_course(now)
        yield from self._begun_anew(now, rate)
        yield from self._stays_above(now, loss, rate)

    def _off_course(self, now: StepTable) -> Iterator[Finding]:
        """Find a learning rate that leaves its own course at once."""
        rates = np.array([*now.remember("rate", now.rate), now.rate])
        rows = now.layout.rows("exp_avg", "param")
        named = np.flatnonzero(now.layout.of("scalar") & now.layout.matching(RATE))
        rows = named if len(named) else rows
        if len(rates) < 5 or not len(rows) or not (rates[-4:-1] > 0).all():
            return
        before, last, rate = rates[-3:]
        # As a line or as a power, whichever is more.
        ahead = max(2 * last - before, last * last / before, last)
        tops = now.remember("top rate", max(now.largest_rate, rate))
        top = max([*rates[:-1], *tops[-1:]])
        # A schedule that restarts goes back to about where it began.
        restarts = _RESTART * top < rate < 1.02 * top
        if rate > self.rate_factor * ahead and not restarts:
            words = "the learning rate has left its course"
        elif rate < last * _FALLEN and 2 * last - before > _FALLEN * top:
            words = "nothing is learnt from here on" if rate == 0 else "the learning rate has left its course"
        else:
            return
        yield Finding(
            rows[:1],
            "rate",
            rate,
            last,
            lambda value, before: f"The learning rate is {value:.3g}, {before:.3g} the step before: {words}.",
        )

    def _begun_anew(self, now: StepTable, rate: np.ndarray) -> Iterator[Finding]:
        """Find a learning rate that fell to less than a third at once and rises: a second warm-up."""
        for at in np.flatnonzero(rate).tolist():
            values = _last(now, at)[-5:]
            fell = len(values) == 5 and values[1] * _BEGUN < values[0]
            if fell and (np.diff(values[1:]) > 0).all() and values[-1] < values[0]:
                yield Finding(
                    np.array([at]),
                    "value",
                    values[-1],
                    values[0],
                    lambda value, before: (
                        f"It fell at once from {before:.3g} and rises again, now {value:.3g}: the schedule "
                        "has begun anew."
                    ),
                )

    def _stays_above(self, now: StepTable, loss: np.ndarray, rate: np.ndarray) -> Iterator[Finding]:
        """Find a loss whose last 8 values exceed the 16 before beyond noise, at no rising learning rate."""
        rose = any(
            values[-1] > 1.1 * values.min() or values.max() > 1.1 * values[0]
            for at in np.flatnonzero(rate).tolist()
            if len(values := _last(now, at)[-3 * _STAYS :])
        )
        for at in np.flatnonzero(loss).tolist():
            values = _last(now, at)[-3 * _STAYS :]
            last, before = values[-_STAYS:], values[:-_STAYS]
            # Noise alone puts 24 numbers in this order once in 700,000 times.
            if rose or len(before) < 2 * _STAYS or not last.min() > before.max():
                continue
            value, level = float(np.median(last)), float(np.median(before))
            # Of differences, which a slope does not widen.
            noise = 1.4826 * float(np.median(np.abs(np.diff(before)))) / 2**0.5
            if value - level > _RISE * noise:
                yield Finding(
                    np.array([at]),
                    "level",
                    value,
                    level,
                    lambda value, level: (
                        f"It stays at {value:.3g} for {_STAYS} steps, above all of the {2 * _STAYS} steps "
                        f"before, which were about {level:.3g}."
                    ),
                )


def _last(now: StepTable, at: int) -> np.ndarray:
    """Return the last values of a number of the training loop, with this step's."""
    value = float(now.rows[at, 1])
    return np.array([*now.remember(("value", now.layout.names[at]), value), value])


# Names of a learning rate.
RATE = r"^lr$|learning.rate"
# Of the highest rate, from which on a jump is a restart; of the last rate, what is no schedule's step; how
# many times a rate must fall that begins a warm-up.
_RESTART, _FALLEN, _BEGUN = 0.6, 0.02, 3.0
# Doublings of the gradient's norm.
_LARGE_NORM = 5.0
# Steps for which a loss that rose stays, and by how many times its noise it rises.
_STAYS, _RISE = 8, 3.0
