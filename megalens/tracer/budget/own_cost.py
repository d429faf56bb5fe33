"""What tracing costs at least, by the training thread's own clock: known long before a comparison of steps says anything."""

from __future__ import annotations

import math
from collections import deque

from .shift_estimate import Shift

__all__ = ["OwnCost"]

_SKIPPED_STEPS = 2
_STEPS, _CYCLES = 16, 3
_MOST_CYCLES = 64


class OwnCost:
    """Adds up what a traced cycle took, and how much of it the training thread has spent inside of the tracer. That is lost whatever else is: the other costs come on top.

    Parameters
    ----------
    cycle : int
        Steps from one traced step to the next.
    """

    def __init__(self, cycle: int) -> None:
        self._cycle = cycle
        # What is traced for the first time allocates and compiles.
        self._skip = _SKIPPED_STEPS
        self._at = -1
        self._seen = self._wall = self._spent = 0
        self._shares: deque[float] = deque(maxlen=_MOST_CYCLES)

    def add(self, step: int, wall_ns: int, spent_ns: int) -> None:
        """Count one step that was not left out."""
        if self._skip:
            self._skip -= 1
            return
        at = step // self._cycle
        if at != self._at:
            self._at = at
            self._seen = self._wall = self._spent = 0
        self._seen += 1
        self._wall += wall_ns
        self._spent += spent_ns
        if self._seen == self._cycle and self._wall > self._spent:
            # In steps a cycle, as the comparison has it: of those that would be without tracing.
            self._shares.append(self._cycle * self._spent / (self._wall - self._spent))

    def shift(self, z: float) -> Shift | None:
        """Return how many steps longer a cycle is for it: the median, with the interval of the sign test at ``z`` standard deviations, which no stall moves. None before 16 steps."""
        n = len(self._shares)
        if n < _CYCLES or n * self._cycle < _STEPS:
            return None
        ordered = sorted(self._shares)
        outside = math.floor((n - z * math.sqrt(n)) / 2)
        low, high = (ordered[outside - 1], ordered[-outside]) if outside > 0 else (ordered[0], math.inf)
        return Shift(ordered[n // 2], low, high)
