"""How often somebody may do something."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Pace"]


class Pace:
    """A few at once, and then so many a second.

    Parameters
    ----------
    burst : int
        How many at once.
    rate : float
        How many a second after that.
    clock : callable
        Seconds that never jump.
    """

    def __init__(self, burst: int, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.burst = burst
        self.rate = rate
        self._clock = clock
        self._left = float(burst)
        self._at = clock()

    def take(self, cost: int = 1) -> bool:
        """Return whether one more may be done now, and count it: as several where it costs as much as these."""
        now = self._clock()
        self._left = min(self.burst, self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left < cost:
            return False
        self._left -= cost
        return True
