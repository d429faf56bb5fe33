"""Numbering of values that are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["dense"]

# Up to so many times as many values as rows are marked in a table; of more the values that occur are found by sorting.
_SPARSE = 4


def dense(values: NDArray[Any], low: int, size: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the different values, ascending, and the place of each value among them.

    Parameters
    ----------
    values : ndarray
        Whole numbers.
    low, size : int
        All of them are at least ``low`` and less than ``low + size``.
    """
    if size > _SPARSE * len(values) + 1024:
        found, place = np.unique(values, return_inverse=True)
        return found, place
    offset = values - low if low else values
    taken = np.zeros(size, bool)
    taken[offset] = True
    found = np.flatnonzero(taken)
    if len(found) == size:
        return found + low, offset
    place = np.empty(size, np.int64)
    place[found] = np.arange(len(found))
    return found + low, place[offset]
