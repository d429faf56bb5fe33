"""How values are shown: against the first one of their group, and as a trailing mean. The twin of ``src/aggregate/moment-tables.ts``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...gathering import trailing_mean

__all__ = ["SHOWS", "shape_values"]

Column = NDArray[np.float64]

SHOWS = ("raw", "relative", "delta", "percent")
"""Values as they are, over the first finite one of their group, minus it, or the change from it in per cent."""


def shape_values(
    starts: NDArray[np.int64], value: Column, show: str, smoothing: int
) -> tuple[Column, Column]:
    """Return the values as they are shown, and by what their errors are multiplied.

    Over a first value of 0 there is nothing. A trailing mean is over finite values; what is not finite stays as it is.

    Parameters
    ----------
    starts : ndarray
        Where each group begins, from 0.
    value : ndarray
        The values of every step, ordered by group, then step.
    show : str
        One of :data:`SHOWS`.
    smoothing : int
        How many steps a mean is over; 0 and 1 leave the values as they are.
    """
    if not len(value):
        return value, value
    ends = np.append(starts[1:], len(value))
    shown, scale = value, np.ones(len(value))
    with np.errstate(all="ignore"):
        if show != "raw":
            first = np.repeat(_firsts(value, starts), ends - starts)
            if show == "delta":
                shown = value - first
            else:
                scale = np.where(first == 0, np.nan, 1 / first)
                shown = value * scale if show == "relative" else (value - first) * 100 * np.abs(scale)
                scale = np.abs(scale) * (100 if show == "percent" else 1)
        if smoothing > 1:
            raw, shown = shown, np.empty_like(shown)
            for begin, end in zip(starts, ends, strict=True):
                part = raw[begin:end]
                shown[begin:end] = np.where(np.isfinite(part), trailing_mean(part, smoothing), part)
    return shown, scale


def _firsts(values: Column, starts: NDArray[np.int64]) -> Column:
    """Return the first finite value of each group, NaN where there is none."""
    nowhere = len(values)
    places = np.minimum.reduceat(np.where(np.isfinite(values), np.arange(nowhere), nowhere), starts)
    return np.append(values, np.nan)[places]
