"""Telling of trouble that strangers can make as often as they like."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

__all__ = ["MinuteLog"]

_SECONDS = 60.0
_MOST_KINDS = 32


class MinuteLog:
    """Counts what went wrong by kind, and writes at most one line a minute.

    Parameters
    ----------
    write : callable
        Takes a line.
    clock : callable
        Seconds that never jump.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._write = write
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._next = float("-inf")

    def count(self, what: str) -> None:
        """Count one of a kind, and write what has been counted where that is due."""
        self.total += 1
        self._counts[what if what in self._counts or len(self._counts) < _MOST_KINDS else "others"] += 1
        self.tick()

    def tick(self) -> None:
        """Write what has been counted, where that is due."""
        if self._clock() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Write what has been counted now."""
        if self._counts:
            self._next = self._clock() + _SECONDS
            self._write("; ".join(f"{what}: {count}" for what, count in self._counts.items()) + ".")
            self._counts.clear()
