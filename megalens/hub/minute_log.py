"""Bounded reports of trouble that clients can cause as often as they like."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

_SECONDS = 60.0
_MOST_KINDS = 32

_MOST_WARNINGS, _MOST_ALIKE = 200, 8
_NUMBERS = re.compile(r"\d+")


class WarningLog:
    """Chooses which warnings become rows of the stream ``audit``: each sentence once, and not too many alike.

    They are recorded for good, and whoever sends them decides how many there are; so those that differ by
    their numbers only, and all together, are limited.
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
            self._alike[form] += 1
            if self._alike[form] <= _MOST_ALIKE:
                self._seen.add(text)
                yield text
            elif self._alike[form] == _MOST_ALIKE + 1:
                yield f"Further warnings like this one are not recorded: {text}"[:500]


class MinuteLog:
    """Counts what went wrong by kind, and writes at most one line a minute."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._write = write
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._next = float("-inf")

    def count(self, what: str) -> None:
        """Count one of a kind, and write the counts where that is due."""
        self.total += 1
        self._counts[what if what in self._counts or len(self._counts) < _MOST_KINDS else "others"] += 1
        self.tick()

    def tick(self) -> None:
        """Write the counts where that is due."""
        if self._clock() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Write the counts now."""
        if self._counts:
            self._next = self._clock() + _SECONDS
            self._write("; ".join(f"{what}: {count}" for what, count in self._counts.items()) + ".")
            self._counts.clear()
