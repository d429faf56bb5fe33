"""One statistic of merged moments and how far it may be off: the twin of ``src/protocol/moment-statistics.ts``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ....protocol import MOMENT_COLUMNS, near_zero_share, read_moments

__all__ = ["moment_columns", "reading_error", "reading_value"]

Column = NDArray[np.float64]

_POWERS = {"skewness": 3, "kurtosis": 4, "excess_kurtosis": 4}


def moment_columns(statistic: str | None) -> tuple[str, ...]:
    """Return the columns of moments that a statistic and its error are read from; all of them where none is named."""
    if statistic is None:
        return MOMENT_COLUMNS
    if statistic == "nonfinite":
        return ("count",)
    if statistic == "near_zero_share":
        return ("count", "near_zero_count")
    powers = (f"m{power}" for power in range(2, _POWERS.get(statistic, 2) + 1))
    return ("count", "mean", *powers, *((statistic,) if statistic in ("min", "max") else ()))


def reading_value(merged: Mapping[str, Column], statistic: str) -> Column:
    """Return a statistic of each group; NaN where there is none. ``nonfinite`` is always a count, and the share near zero is of all values."""
    if statistic == "near_zero_share":
        return near_zero_share(merged)
    if statistic == "nonfinite":
        return merged["nan_count"] + merged["inf_count"]
    return read_moments(merged, statistic)[statistic]


def reading_error(merged: Mapping[str, Column], statistic: str) -> Column:
    """Return how far that may be off by the rounding of raw sums, in its own unit: 0 where it is exact, infinite where nothing of it is left."""
    inexact = (merged["m2_error"] > 0) | (merged["m4_error"] > 0)
    if not inexact.any() or statistic in ("min", "max", "near_zero_share", "nonfinite"):
        # Of millions of cells this takes no memory.
        return np.broadcast_to(np.float64(0), len(inexact))
    error = np.zeros(len(inexact))
    part = {name: column[inexact] for name, column in merged.items()}
    with np.errstate(all="ignore"):
        found = _error(part, statistic)
    error[inexact] = np.where(np.isnan(found), np.inf, found)
    return error


def _error(merged: Mapping[str, Column], statistic: str) -> Column:
    read = read_moments(merged)
    n, variance = merged["count"], read["variance"]
    # What the sum of x² may be off by: the contract's m2_error is three times that.
    squares, varies = merged["m2_error"] / 3, merged["m2_error"] / n
    relative = varies / variance
    if statistic == "mean":
        return squares / n / read["rms"]
    if statistic == "variance":
        return varies
    if statistic == "std":
        return _root(variance, varies)
    if statistic == "rms":
        return _root(read["rms"] ** 2, squares / n)
    if statistic == "l2":
        return _root(read["l2"] ** 2, squares)
    if statistic == "skewness":
        third = 2 * np.sqrt(squares * merged["m4_error"])
        skewness: Column = third / n / variance**1.5 + 1.5 * relative * np.abs(read["skewness"])
        return skewness
    fourth: Column = merged["m4_error"] / n / variance**2 + 2 * relative * np.abs(read["kurtosis"])
    return fourth


def _root(squared: Column, off: Column) -> Column:
    """Of a root: the farther of the two ends of the interval."""
    root = np.sqrt(squared)
    farther: Column = np.maximum(root - np.sqrt(np.maximum(0, squared - off)), np.sqrt(squared + off) - root)
    return farther
