"""Rules about what changes at once, against a level and a usual distance from it that one outlier does not move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...protocol.kinds import number
from ..rule import Finding, Rule
from ..table import StepTable

__all__ = ["Collapse", "Jump"]

_THRESHOLD = "How many usual deviations from the level of the last steps it may be off."
_FACTOR = "And at least how many times as large or small it must be."


def _off(now: StepTable, quantity: str, threshold: float, factor: float) -> np.ndarray:
    """Return how far each row is off, with its sign, where that is too far; else 0."""
    past = now.past(quantity)
    with np.errstate(invalid="ignore"):
        limit = np.maximum(np.log2(factor), threshold * past.sigma)
        far = np.abs(past.off) > limit
    return np.where(far & (past.seen >= 8) & np.isfinite(past.off), past.off, 0.0)


@dataclass(frozen=True)
class Jump(Rule):
    """Values are suddenly much larger than they were in the steps before: a broken batch, a flipped bit, or a training that begins to diverge."""

    name = "jump"
    title = "Jump"
    quantities = ("size", "peak")
    properties = {
        "threshold": number("Threshold", _THRESHOLD, 2, 1000, 10),
        "factor": number("Factor", _FACTOR, 1.01, 1e6, 4),
    }

    threshold: float = 10.0
    factor: float = 4.0

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors whose rms or largest value is far above its level."""
        judged = ~now.layout.of("gradient_direction", "scalar")
        for quantity, statistic in (("size", "rms"), ("peak", "max_abs")):
            off = _off(now, quantity, self.threshold, self.factor)
            rows = np.flatnonzero((off > 0) & judged)
            if len(rows):
                yield _beside(now, quantity, statistic, rows)


@dataclass(frozen=True)
class Collapse(Rule):
    """Values are suddenly much smaller than they were in the steps before: something is left out, scaled wrongly, or was reset."""

    name = "collapse"
    title = "Collapse"
    quantities = ("size",)
    properties = {
        "threshold": number("Threshold", _THRESHOLD, 2, 1000, 10),
        "factor": number("Factor", _FACTOR, 1.01, 1e6, 8),
    }

    threshold: float = 10.0
    factor: float = 8.0

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors whose rms is far below its level."""
        off = _off(now, "size", self.threshold, self.factor)
        rows = np.flatnonzero((off < 0) & ~now.layout.of("gradient_direction", "scalar"))
        if len(rows):
            yield _beside(now, "size", "rms", rows)


def _beside(now: StepTable, quantity: str, statistic: str, rows: np.ndarray) -> Finding:
    words = {"rms": "Its rms", "max_abs": "Its largest value", "value": "It"}[statistic]
    return Finding(
        rows,
        statistic,
        2.0 ** getattr(now, quantity)[rows],
        2.0 ** now.past(quantity).level[rows],
        lambda value, level: f"{words} is {value:.3g}, {_times(value, level)} {level:.3g} of the steps before.",
    )


def _times(value: float, level: float) -> str:
    up = value >= level
    factor = (value / level if up else level / value) if min(value, level) > 0 else np.inf
    return f"{factor:,.3g} times {'the' if up else 'below the'}"
