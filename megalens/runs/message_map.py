"""Where the messages of a stream file lie, and which steps they hold."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

__all__ = ["MessageMap"]


class MessageMap:
    """Of each message where it begins and ends, its first and last step, and of which kind its rows are: 0 where nobody said."""

    def __init__(self) -> None:
        self._numbers = [array("q") for _ in range(5)]

    def __len__(self) -> int:
        return len(self._numbers[0])

    def add(self, begin: int, end: int, low: int, high: int, kind: int = 0) -> None:
        """Add a message."""
        for numbers, number in zip(self._numbers, (begin, end, low, high, kind), strict=True):
            numbers.append(number)

    def extend(self, *columns: NDArray[np.int64]) -> None:
        """Add messages: what :meth:`add` takes, of each."""
        for numbers, column in zip(self._numbers, columns, strict=True):
            numbers.frombytes(column.tobytes())

    def all(self) -> NDArray[np.int64]:
        """Return all messages as they lie: a row each, of the five numbers."""
        return np.array(self._numbers, np.int64).T

    def within(self, first: int | None, last: int | None) -> NDArray[np.int64]:
        """Return the messages that have steps from ``first`` to ``last``, or may have, by their first steps: a row each, of the five numbers."""
        found, inside = self._split(first, last)
        chosen = found[inside]
        return chosen[np.argsort(chosen[:, 2], kind="stable")]

    def among(self, first: int | None, last: int | None) -> NDArray[np.int64]:
        """Return the messages that have or may have such steps, as they lie: a row each, of the five numbers."""
        found, inside = self._split(first, last)
        return found[inside]

    def _split(self, first: int | None, last: int | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        found = self.all()
        inside = np.ones(len(found), bool)
        if first is not None:
            inside &= found[:, 3] >= first
        if last is not None:
            inside &= found[:, 2] <= last
        return found, inside
