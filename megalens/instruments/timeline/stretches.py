"""Robust statistics of series over steps: medians, and the intervals in which a series is high."""

from __future__ import annotations

import warnings
from math import sqrt

import numpy as np

from .spans import Floats

SURE = 6.0
"""Standard errors by which a finding must exceed zero."""
SHORTEST = 6
_BLOCK = 4
"""Steps of a block by which lasting noise, such as of a busy host, is measured."""
MAD = 1.4826
LEAST_NS = 1e6
"""Less than a millisecond of a step is noise of the operating system."""


def stretches(values: Floats, least: float, sure: float = SURE) -> dict[int, tuple[int, int, float, float]]:
    """Return by row the interval that is most above ``least`` / 2, if its mean is at least that.

    Columns are beginning, end, mean and standard error.
    """
    result: dict[int, tuple[int, int, float, float]] = {}
    if values.shape[1] < SHORTEST:
        return result
    smooth = running_median(values, 3)
    noise = MAD * median(np.abs(np.diff(values, axis=1)), axis=1) / sqrt(2)
    for row in np.flatnonzero(np.nan_to_num(smooth).max(axis=1) > least / 2):
        # Once more above half of what was found: where it really begins and ends.
        mean = least
        for _ in range(3):
            begin, end = _highest(smooth[row], mean / 2)
            inside = values[row, begin:end]
            count = int(np.isfinite(inside).sum())
            if count < SHORTEST:
                break
            mean = max(least, float(np.nanmean(smooth[row, begin:end])))
        else:
            found = float(np.nanmedian(inside))
            error = max(float(noise[row]), _lasting(values[row], begin, end)) / sqrt(count)
            error = max(error, 1e-4)
            if found >= least and found >= sure * error:
                result[int(row)] = (begin, end, found, error)
    return result


def _lasting(values: Floats, begin: int, end: int) -> float:
    """Return the noise of single values from means over blocks of steps, without what was found.

    Where a disturbance lasts, that is more than differences of neighbours show.
    """
    rest = values.copy()
    inside = np.zeros(len(values), bool)
    inside[begin:end] = True
    for part in (inside, ~inside):
        if np.isfinite(rest[part]).any():
            rest[part] -= np.nanmedian(rest[part])
    complete = len(rest) // _BLOCK * _BLOCK
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        means = np.nanmean(rest[:complete].reshape(-1, _BLOCK), axis=1)
    means = means[np.isfinite(means)]
    return sqrt(_BLOCK) * MAD * float(np.median(np.abs(means))) if len(means) >= 4 else 0.0


def _highest(values: Floats, above: float) -> tuple[int, int]:
    """Return the interval with the largest sum above a value (Kadane); missing steps count as nothing."""
    sums = np.concatenate([[0.0], np.cumsum(np.where(np.isfinite(values), values - above, 0.0))])
    lowest = np.minimum.accumulate(sums)
    end = int((sums - lowest).argmax())
    return int(sums[: end + 1].argmin()), end


def median(values: Floats, axis: int) -> Floats:
    """Return medians without NaN, or NaN if there is nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        median: Floats = np.nanmedian(values, axis=axis)
    return median


def running_median(values: Floats, width: int) -> Floats:
    """Return running medians along the last axis, over fewer values at the ends."""
    half = width // 2
    padded = np.pad(values, ((0, 0), (half, half)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)
    return median(windows, 2)
