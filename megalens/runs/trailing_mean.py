"""The mean of each point and of those before it: the twin of ``src/aggregate/trailing-mean.ts``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["trailing_mean"]


def trailing_mean(values: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """Return the mean of each value and those before it, ``points`` in all, over the finite ones; NaN where there is none.

    The sum is taken afresh for each block of points: a running sum would keep the rounding of everything that ever passed through.
    """
    if points < 2 or not len(values):
        return np.where(np.isfinite(values), values, np.nan)
    finite = np.isfinite(values)
    # Whole blocks, and one of nothing before the first point.
    behind = -len(values) % points
    sums, counts = (
        np.pad(column.astype(np.float64), (points, behind)).reshape(-1, points)
        for column in (np.where(finite, values, 0.0), finite)
    )
    total, count = (_windows(column)[: len(values)] for column in (sums, counts))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: NDArray[np.float64] = total / np.where(count > 0, count, np.nan)
    return mean


def _windows(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each entry behind the first block the sum of it and of those before it, as many in all as a block has: of the block's start to here, and of the end of the one before."""
    from_start = np.cumsum(blocks, axis=1)[1:]
    to_end = np.cumsum(blocks[:, ::-1], axis=1)[:-1, ::-1]
    from_start[:, :-1] += to_end[:, 1:]
    return from_start.ravel()
