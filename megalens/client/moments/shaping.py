"""How values are shown: against the first one of their group, and as a trailing mean. The twin of ``src/aggregate/moment-shape.ts``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..trailing_mean import trailing_mean

__all__ = ["SHOWS", "shape_values"]

Column = NDArray[np.float64]

SHOWS = ("raw", "relative", "delta", "percent")
"""Values as they are, over the first finite one of their group, minus it, or the change from it in per cent."""


def shape_values(
    keys: Sequence[NDArray[np.int64]], step: NDArray[Any], value: Column, show: str, smoothing: int
) -> tuple[Column, Column]:
    """Return the values as they are shown, and by what their errors are multiplied.

    Over a first value of 0 there is nothing. A trailing mean is over finite values; what is not finite stays as it is.

    Parameters
    ----------
    keys, step : sequence of ndarray, ndarray
        Group (none where there is one) and step of each value; every step of the group, in any order.
    value : ndarray
        The values.
    show : str
        One of :data:`SHOWS`.
    smoothing : int
        How many steps a mean is over; 0 and 1 leave the values as they are.
    """
    if not len(step):
        return value, value
    order = np.lexsort((step, *reversed(keys)))
    changed = np.zeros(len(order), bool)
    changed[0] = True
    for key in keys:
        changed[1:] |= np.diff(key[order]) != 0
    starts = np.flatnonzero(changed)
    ends = np.append(starts[1:], len(order))
    shown, scale = value[order], np.ones(len(order))
    with np.errstate(all="ignore"):
        if show != "raw":
            first = np.repeat(_firsts(shown, starts), np.diff(ends, prepend=0))
            if show == "delta":
                shown = shown - first
            else:
                scale = np.where(first == 0, np.nan, 1 / first)
                shown = shown * scale if show == "relative" else (shown - first) * 100 * np.abs(scale)
                scale = np.abs(scale) * (100 if show == "percent" else 1)
        if smoothing > 1:
            for begin, end in zip(starts, ends, strict=True):
                part = shown[begin:end]
                shown[begin:end] = np.where(np.isfinite(part), trailing_mean(part, smoothing), part)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return shown[back], scale[back]


def _firsts(values: Column, starts: NDArray[np.int64]) -> Column:
    """Return the first finite value of each group, NaN where there is none."""
    nowhere = len(values)
    places = np.minimum.reduceat(np.where(np.isfinite(values), np.arange(nowhere), nowhere), starts)
    return np.append(values, np.nan)[places]
