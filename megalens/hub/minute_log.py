"""Reports of trouble that strangers can make as often as they like, bounded."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

__all__ = ["MinuteLog", "WarningLog"]

_SECONDS = 60.0
_MOST_KINDS = 32

_MOST_WARNINGS, _MOST_ALIKE = 200, 8
_NUMBERS = re.compile(r"\d+")


class WarningLog:
    """Chooses which warnings become rows of the stream ``audit``: lets each sentence through once. Of those
    that differ by their numbers only, and of all together, no more than a reader wants: they are recorded for
    good, and whoever sends them decides how many there are.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._alike: Counter[str] = Counter()

    def new(self, warnings: Iterable[str]) -> Iterator[str]:
        """Give those that are to be recorded."""
        for text in warnings:
            if text in self._seen or len(self._seen) >= _MOST_WARNINGS:
                continue
            form = _NUMBERS.sub("0", text)
            if self._alike[form] < _MOST_ALIKE:
                self._alike[form] += 1
                self._seen.add(text)
                yield text


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
