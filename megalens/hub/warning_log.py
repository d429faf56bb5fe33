"""Which warnings become rows of the stream ``audit``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

__all__ = ["WarningLog"]

_MOST, _MOST_ALIKE = 200, 8
_NUMBERS = re.compile(r"\d+")


class WarningLog:
    """Lets each sentence through once. Of those that differ by their numbers only, and of all together, no more than a reader wants: they are recorded for good, and whoever sends them decides how many there are."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._alike: Counter[str] = Counter()

    def new(self, warnings: Iterable[str]) -> Iterator[str]:
        """Give those that are to be recorded."""
        for text in warnings:
            if text in self._seen or len(self._seen) >= _MOST:
                continue
            form = _NUMBERS.sub("0", text)
            if self._alike[form] < _MOST_ALIKE:
                self._alike[form] += 1
                self._seen.add(text)
                yield text
