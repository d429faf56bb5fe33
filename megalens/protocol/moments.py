"""Central moments: merging them, making them of raw sums and back, and the statistics read from them.

Everything here is numpy on columns (one entry a row), in float64. The browser's twin reads the same golden
cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contract import contract_json

__all__ = [
    "CAST_SHARES",
    "CAST_STATS",
    "MOMENT_COLUMNS",
    "MOMENT_POWERS",
    "MOMENT_READINGS",
    "MOMENT_STATISTICS",
    "MOMENT_STATS",
    "RAW_MOMENTS_FOLDER",
    "RAW_SUMS",
    "SCALED_STATS",
    "distinct",
    "merge_moments",
    "moments_from_raw_sums",
    "near_zero_share",
    "raw_sums_from_moments",
    "read_moments",
    "single_moments",
]

Column = NDArray[np.float64]
Columns = Mapping[str, Column]

_DEFINITIONS = contract_json("views.schema.json")["$defs"]

MOMENT_STATS: tuple[str, ...] = tuple(_DEFINITIONS["Measured"]["enum"])
"""What can be measured, in the order in which it is offered."""

MOMENT_READINGS: tuple[str, ...] = tuple(_DEFINITIONS["MomentStatistic"]["enum"])
"""What a picture can show of a group; ``nonfinite`` is ``nan_count`` and ``inf_count`` together."""

_COUNTS = ("nan_count", "inf_count", "negative_inf_count", "near_zero_count")

MOMENT_COLUMNS = ("count", "mean", "m2", "m3", "m4", "min", "max", *_COUNTS)
"""Columns of the stream ``moments`` that are merged."""

MOMENT_POWERS = np.array([0, 1, 2, 3, 4, 1, 1] + [0] * len(_COUNTS), np.float64)
"""With what power of a factor each of them grows when the values are multiplied by it."""

RAW_SUMS = ("count", "sum_1", "sum_2", "sum_3", "sum_4")
"""Count and raw sums of powers, as files of raw moments have them."""
RAW_MOMENTS_FOLDER = "training_stats"
"""The folder that holds the files of raw moments of one run."""
SCALED_STATS = ("dgrad", "residual_dgrad")
"""What files of raw moments hold multiplied by the loss scale: gradients inside of the backward pass."""

CAST_SHARES = ("underflow", "overflow", "saturated", "subnormal")
"""What a cast to fewer bits loses, as shares: moments of ones and zeros."""
CAST_STATS = (*CAST_SHARES, "cast_error", "cast_scale", "cast_amax")
"""All that is said of a cast; rows are named ``<tensor>/<stat of the tensor>:<format>``."""

# Up to this multiple of the rows, values are marked in a table; beyond, they are found by sorting.
_SPARSE = 4

_ADDED = ("count", "m2", "m3", "m4")

# Roundings in a row of a sum of squares: two of the distance and one of its square, a run of 32 additions,
# and those that put lanes together; on a GPU fewer than 48.
_BLOCK_ROUNDING = 48 * 2.0**-24 / (1 - 48 * 2.0**-24)
# Of the sum from which a block's pivot comes: 4096 values of two bytes in eight lanes, the lanes, and a
# division.
_PIVOT_ROUNDING = 540 * 2.0**-24 / (1 - 540 * 2.0**-24)

ERROR_COLUMNS = ("m2_error", "m4_error")
"""How far ``m2`` and ``m4`` may be off by the rounding of raw sums; additive like them."""

# An answer has its columns in this order, which people see in their frames.
MOMENT_STATISTICS = (
    *("count", "mean", "variance", "std", "l2", "rms", "skewness", "kurtosis", "excess_kurtosis"),
    *("nan_count", "inf_count", "min", "max", "near_zero_count", "near_zero_share"),
)
"""What :func:`read_moments` gives."""


def distinct(values: NDArray[Any], low: int, size: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the different values, ascending from ``low`` and below ``low + size``, and the index of each
    value among them.
    """
    if size > _SPARSE * len(values) + 1024:
        found, index = np.unique(values, return_inverse=True)
        return found, index
    offset = values - low if low else values
    taken = np.zeros(size, bool)
    taken[offset] = True
    found = np.flatnonzero(taken)
    if len(found) == size:
        return found + low, offset
    index = np.empty(size, np.int64)
    index[found] = np.arange(len(found))
    return found + low, index[offset]


def merge_moments(columns: Columns, group: NDArray[np.integer], groups: int) -> dict[str, Column]:
    """Merge rows into groups, exactly as if the values themselves had been grouped.

    The central moments of a group are the sums of its rows' moments about the group's mean (Pébay 2008,
    SAND2008-6212, equations 3.1 for many sets at once): with d the distance of a row's mean from the group's,
    M2 + n d², M3 + 3 d M2 + n d³, M4 + 4 d M3 + 6 d² M2 + n d⁴.

    Parameters
    ----------
    columns : mapping
        :data:`MOMENT_COLUMNS` and ``rounding`` (0 when absent), float64, one entry a row; rows that were
        merged before have ``m2_error`` and ``m4_error`` in its place. Rows of count 0 only add their other
        counts. Extremes, other counts, and moments from the highest down to the mean, may be absent: they are
        left out of the answer then. Moments of a row whose mean is NaN, not known, are about zero, and so are
        those of its group.
    group : ndarray
        Group of each row, from 0.
    groups : int
        Number of groups.

    Returns
    -------
    dict
        :data:`MOMENT_COLUMNS`, ``m2_error`` and ``m4_error``, one entry a group, to be read only. A group
        without data has count 0 and NaN for mean, min and max. What is not known of one row (min, max,
        non-finite counts) is not known of its group; a non-finite mean stays.
    """

    def add(weights: Column, of: NDArray[np.integer]) -> Column:
        return _sums(weights, of, groups)

    merged = {
        name: add(columns[name], group) if columns[name].any() else _nothing(groups)
        for name in _COUNTS
        if name in columns
    }
    there = columns["count"] > 0
    if not there.all():
        group = group[there]
        columns = {name: column[there] for name, column in columns.items()}
    n = columns["count"]
    merged["count"] = count = add(n, group)
    if "mean" not in columns:
        return merged | {name: _nothing(groups) for name in ERROR_COLUMNS}
    mean = columns["mean"]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        # The mean of means is summed as distances from the first mean of the group. If all rows have the same
        # mean, every distance is exactly 0 and the result is that mean, bit for bit.
        near = np.zeros(groups)
        near[group[::-1]] = mean[::-1]
        near[~np.isfinite(near)] = 0
        middle = near + add(n * (mean - near[group]), group) / count
        middles = middle[group]
        d = mean - middles
        # inf - inf is NaN: a row whose infinite mean is that of its group is at distance 0, too.
        d[mean == middles] = 0
        # Where a mean is not known, moments are about zero.
        if (zero := np.isnan(middles)).any():
            d[zero] = np.where(np.isnan(mean), 0, np.where(np.isfinite(mean), mean, np.nan))[zero]
        # Central moments about the group's mean, by the binomial theorem with d = mean - middle. M1 is 0 and
        # drops out: M2 + n d²,  M3 + 3 d M2 + n d³,  M4 + 4 d M3 + 6 d² M2 + n d⁴, each summed over the rows.
        nd, m2 = n * d, columns["m2"]
        merged |= {"mean": middle, "m2": add(m2 + nd * d, group)}
        if "m3" in columns:
            square, m3 = d * d, columns["m3"]
            merged["m3"] = add(m3 + 3 * d * m2 + nd * square, group)
            if "m4" in columns:
                merged["m4"] = add(columns["m4"] + 4 * d * m3 + 6 * square * m2 + nd * d * square, group)
        for name, choose in (("min", np.minimum), ("max", np.maximum)):
            if name in columns:
                merged[name] = _extreme(choose, columns[name], group, groups)
        return merged | _errors(columns, group, groups)


def single_moments(columns: Columns) -> dict[str, Column]:
    """Return what :func:`merge_moments` makes of rows of which each is a group of its own, in their order."""
    n = len(columns["count"])
    merged = {
        name: column if name not in _COUNTS or column.any() else _nothing(n)
        for name in MOMENT_COLUMNS
        if (column := columns.get(name)) is not None
    }
    none = ~(columns["count"] > 0)
    if "mean" not in columns:
        return merged | {name: _nothing(n) for name in ERROR_COLUMNS}
    # A row is at no distance from itself; 0 times an infinite moment is not known.
    with np.errstate(invalid="ignore"):
        m2, m3 = columns["m2"], columns.get("m3")
        if m3 is not None:
            merged["m3"] = m3 + 0 * m2
            if "m4" in columns:
                merged["m4"] = columns["m4"] + 0 * m3 + 0 * m2
    for name, start in (("min", np.inf), ("max", -np.inf)):
        if name in merged:
            merged[name] = np.where(merged[name] == start, np.nan, merged[name])
    if none.any():
        for name in merged.keys() - {*_COUNTS}:
            merged[name] = np.where(none, 0 if name in _ADDED else np.nan, merged[name])
    with np.errstate(invalid="ignore", over="ignore"):
        return merged | _errors(columns, np.arange(n), n, ~none)


def _errors(
    columns: Columns, group: NDArray[np.integer], groups: int, there: NDArray[np.bool_] | None = None
) -> dict[str, Column]:
    """Return :data:`ERROR_COLUMNS`: the worst case of sums of x² and x⁴ that are each off by ``rounding``,
    see :func:`read_moments`. ``there``: the rows with data, where not all have any.
    """
    if "m2_error" in columns:
        return {name: _sums(columns[name], group, groups) for name in ERROR_COLUMNS}
    rounding = columns.get("rounding")
    if rounding is None or not (inexact := rounding > 0).any():
        return {name: _nothing(groups) for name in ERROR_COLUMNS}
    if there is not None:
        inexact &= there
    n, mean, m2 = (columns[name][inexact] for name in ("count", "mean", "m2"))
    variance, square = np.maximum(m2 / n, 0), np.where(np.isnan(mean), 0, mean * mean)
    off, of = rounding[inexact] * n, group[inexact]
    return {
        "m2_error": _sums(3 * off * (variance + square), of, groups),
        "m4_error": _sums(off * (variance * variance + 14 * square * square), of, groups),
    }


def _nothing(groups: int) -> Column:
    # A view of a single zero: most rows have only finite values and no rounding, and millions of groups must
    # not cost memory for that.
    return np.broadcast_to(np.float64(0), groups)


def _sums(weights: Column, group: NDArray[np.integer], groups: int) -> Column:
    # Without rows bincount returns integers.
    return np.bincount(group, weights, groups).astype(np.float64, copy=False)


def read_moments(columns: Columns, only: str | None = None) -> dict[str, Column]:
    """Return every statistic of rows or groups of which the columns are there; of millions of them ``only``
    one costs half: the roots of others are not taken.

    Population statistics (divided by n), kurtosis of a normal distribution 3. NaN stands for no answer: no
    data, or skewness and kurtosis of values that are all the same. A negative M2 (rounding) counts as 0.

    Returns
    -------
    dict
        :data:`MOMENT_STATISTICS`; where the columns have errors also ``variance_error``, the bound of all
        rounding there may be in the variance, relative to it, and ``kurtosis_error``, that of what raw sums
        in float32 leave of the kurtosis, absolute.
    """
    n, mean = columns["count"], columns["mean"]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        m2 = np.maximum(columns["m2"], 0)
        variance = m2 / n
        square = variance + mean * mean
        # Moments about zero, where the mean is not known, are of the size alone.
        if (zero := np.isnan(mean)).any():
            square = np.where(zero, variance, square)
            variance = np.where(zero, np.nan, variance)
        # Infinite sums: the size is infinite though its spread is not known.
        infinite = np.isinf(mean)
        if infinite.any():
            square[infinite] = np.inf
        none = n <= 0
        if none.any():
            mean = np.where(none, np.nan, mean)
            variance[none] = square[none] = np.nan
        read = {
            "mean": mean,
            "variance": variance,
            **{
                name: columns[name]
                for name in ("min", "max", "count", "nan_count", "inf_count", "near_zero_count")
                if name in columns
            },
        }
        if "near_zero_count" in columns and only in (None, "near_zero_share"):
            read["near_zero_share"] = near_zero_share(columns)
        if only in (None, "std"):
            read["std"] = np.sqrt(variance)
        if only in (None, "l2"):
            read["l2"] = np.sqrt(n * square)
        if only in (None, "rms"):
            read["rms"] = np.sqrt(square)
        if "m2_error" in columns:
            off = columns["m2_error"]
            relative = np.where(off > 0, off / m2, 0) if off.any() else _nothing(len(n))
            if only is None:
                read["variance_error"] = relative + _measured_error(columns, variance)
        if "m3" not in columns:
            return read
        spread = np.where(variance > 0, variance, np.nan)
        read["skewness"] = columns["m3"] / n / spread**1.5
        if "m4" not in columns:
            return read
        kurtosis = columns["m4"] / n / spread**2
        read |= {"kurtosis": kurtosis, "excess_kurtosis": kurtosis - 3}
        if "m4_error" in columns:
            read["kurtosis_error"] = np.where(
                columns["m4_error"] > 0, columns["m4_error"] / n / spread**2 + 2 * relative * kurtosis, 0
            )
    return read


def _measured_error(columns: Columns, variance: Column) -> Column:
    """Return how far a variance may be off because its values were measured in float32 and merged in float64,
    relative to it. 0 of values that are all the same, infinite where nothing is left of it.

    Values are measured in blocks (``tracer/moments/native/block.inc``): sums of powers of d, the distance
    from a pivot, in runs of 32 additions in float32, so that Σd and Σd² are off by γ Σ|d| and γ Σd², with γ =
    k u / (1 - k u) for k roundings in a row, u = 2⁻²⁴ (Higham, Accuracy and Stability of Numerical
    Algorithms, 2002, lemma 3.1 and section 4.2). The pivot is the mean up to γₚ times the mean size of the
    values, for the p additions of a plain sum; with q σ the distance between the two, M2 = Σd² - n m² is off
    by γ (1 + q² + 2 q √(1 + q²)) M2, and what lies between the means of blocks by γ (1 + q²) M2 at most,
    since 2 |a b| ≤ a² + b². By the inequality of Cauchy and Schwarz that holds of all blocks, ranks and
    tensors of a group together, with q = γₚ √(1 + mean² / variance). Merging them in float64 loses at most
    one unit of 2⁻⁵³ of the mean for each value.
    """
    n, mean = columns["count"], columns["mean"]
    size = np.sqrt(1 + mean * mean / variance)
    q = _PIVOT_ROUNDING * size
    merged = (n + 512) * 2.0**-53 * size
    bound = _BLOCK_ROUNDING * (2 + 2 * q * q + 2 * q * np.sqrt(1 + q * q)) + merged + merged * merged
    # Relative to the variance as it was found, of which nothing is sure where the bound is no small part of
    # it.
    found = np.where(bound < 0.5, bound / (1 - bound), np.where(np.isnan(bound), np.nan, np.inf))
    same = (n == 1) | ((variance == 0) & (mean == 0))
    if "min" in columns:
        same |= columns["min"] == columns["max"]
    return np.where(same, 0.0, found)


def near_zero_share(columns: Columns) -> Column:
    """Return the share near zero of all values, also non-finite ones; NaN where there are none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return columns["near_zero_count"] / (columns["count"] + columns["nan_count"] + columns["inf_count"])


def moments_from_raw_sums(
    count: Column, sum_1: Column, sum_2: Column, sum_3: Column, sum_4: Column
) -> dict[str, Column]:
    """Return :data:`MOMENT_COLUMNS` of values of which the sums of x to x⁴ are known.

    A sum that is not finite makes only those moments non-finite that need it: one that overflowed in
    ``sum_4`` leaves mean, deviation and skewness. What else is not known (extremes; how many values were NaN
    or infinite where ``sum_1`` is not finite) is NaN.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        there = count > 0
        n = np.where(there, count, np.nan)
        mean = sum_1 / n
        m2 = np.maximum(sum_2 - n * mean**2, 0)
        m3 = sum_3 - 3 * mean * sum_2 + 2 * n * mean**3
        m4 = sum_4 - 4 * mean * sum_3 + 6 * mean**2 * sum_2 - 3 * n * mean**4
    known = np.where(np.isfinite(sum_1) | ~there, 0.0, np.nan)
    unknown = np.full(len(count), np.nan)
    return {
        "count": count,
        "mean": mean,
        **{name: np.where(there, moment, 0.0) for name, moment in (("m2", m2), ("m3", m3), ("m4", m4))},
        "min": unknown,
        "max": unknown.copy(),
        "nan_count": known,
        "inf_count": known.copy(),
        "negative_inf_count": known.copy(),
        "near_zero_count": np.where(there, np.nan, 0.0),
    }


def raw_sums_from_moments(columns: Columns) -> dict[str, Column]:
    """Return ``count`` (with the non-finite values) and ``sum_1`` to ``sum_4`` as summing the values would.

    A NaN among the values makes every sum NaN; infinities make the even sums infinite, and the odd ones too
    where all have one sign, which some rows do not have: else they are NaN.
    """
    n = columns["count"]
    nan, inf = (np.nan_to_num(columns[name]) for name in ("nan_count", "inf_count"))
    mean, m2, m3, m4 = (np.where(n > 0, columns[name], 0.0) for name in ("mean", "m2", "m3", "m4"))
    with np.errstate(invalid="ignore", over="ignore"):
        sums = {
            "sum_1": n * mean,
            "sum_2": m2 + n * mean**2,
            "sum_3": m3 + 3 * mean * m2 + n * mean**3,
            "sum_4": m4 + 4 * mean * m3 + 6 * mean**2 * m2 + n * mean**4,
        }
        negative = columns.get("negative_inf_count", np.full(len(n), np.nan)) / inf
    sign = np.where(negative == 0, np.inf, np.where(negative == 1, -np.inf, np.nan))
    for name, total in sums.items():
        total[inf > 0] = sign[inf > 0] if name in ("sum_1", "sum_3") else np.inf
        total[nan > 0] = np.nan
    return {"count": n + nan + inf, **sums}


def _extreme(choose: np.ufunc, values: Column, group: NDArray[np.integer], groups: int) -> Column:
    start = np.inf if choose is np.minimum else -np.inf
    found = np.full(groups, start)
    # minimum and maximum pass NaN on: what is not known of one row is not known of the group.
    choose.at(found, group, values)
    return np.where(found == start, np.nan, found)
