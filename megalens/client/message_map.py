"""Where the messages of a stream file lie, and which steps they hold."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

__all__ = ["MessageMap"]


class MessageMap:
    """Of each message where it begins and ends, and its first and last step."""

    def __init__(self) -> None:
        self._numbers = [array("q") for _ in range(4)]

    def __len__(self) -> int:
        return len(self._numbers[0])

    def add(self, begin: int, end: int, low: int, high: int) -> None:
        """Add a message."""
        for numbers, number in zip(self._numbers, (begin, end, low, high), strict=True):
            numbers.append(number)

    def within(self, first: int | None, last: int | None) -> NDArray[np.int64]:
        """Return the messages that have steps from ``first`` to ``last``, or may have, by their first steps: a row each, of the four numbers."""
        found, inside = self._split(first, last)
        chosen = found[inside]
        return chosen[np.argsort(chosen[:, 2], kind="stable")]

    def outside(self, first: int | None, last: int | None) -> NDArray[np.int64]:
        """Return the messages that have none of these steps, as they lie."""
        found, inside = self._split(first, last)
        return found[~inside]

    def _split(self, first: int | None, last: int | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        found = np.array(self._numbers, np.int64).T
        inside = np.ones(len(found), bool)
        if first is not None:
            inside &= found[:, 3] >= first
        if last is not None:
            inside &= found[:, 2] <= last
        return found, inside
