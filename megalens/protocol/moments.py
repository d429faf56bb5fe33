"""Count, mean and central moments: merging them, making them of raw sums and back, and what is read from them.

Everything here is numpy on columns (one entry a row), in float64. The browser's twin reads the same golden cases.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .contract import contract_json

__all__ = [
    "MOMENT_COLUMNS",
    "MOMENT_READINGS",
    "MOMENT_STATISTICS",
    "MOMENT_STATS",
    "merge_moments",
    "moments_from_raw_sums",
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

MOMENT_COLUMNS = ("count", "mean", "m2", "m3", "m4", "min", "max", "nan_count", "inf_count")
"""Columns of the stream ``moments`` that are merged."""

_ADDED = ("count", "m2", "m3", "m4")
_NOT_FINITE = ("nan_count", "inf_count")

ERROR_COLUMNS = ("m2_error", "m4_error")
"""How far ``m2`` and ``m4`` may be off by the rounding of raw sums; additive like them."""

# An answer has its columns in this order, which people see in their frames.
MOMENT_STATISTICS = (
    *("count", "mean", "variance", "std", "l2", "rms", "skewness", "kurtosis", "excess_kurtosis"),
    *("nan_count", "inf_count", "min", "max"),
)
"""What :func:`read_moments` gives."""


def merge_moments(columns: Columns, group: NDArray[np.integer], groups: int) -> dict[str, Column]:
    """Merge rows into groups, exactly as if the values themselves had been grouped.

    The central moments of a group are the sums of its rows' moments about the group's mean (Pébay 2008, SAND2008-6212, equations 3.1 for many sets
    at once): with d the distance of a row's mean from the group's, M2 + n d², M3 + 3 d M2 + n d³, M4 + 4 d M3 + 6 d² M2 + n d⁴.

    Parameters
    ----------
    columns : mapping
        :data:`MOMENT_COLUMNS` and ``rounding`` (0 when absent), float64, one entry a row. Rows of count 0 only add their non-finite counts. Extremes, and moments from the
        highest down to the mean, may be absent: they are left out of the answer then.
    group : ndarray
        Group of each row, from 0.
    groups : int
        Number of groups.

    Returns
    -------
    dict
        :data:`MOMENT_COLUMNS`, ``m2_error`` and ``m4_error``, one entry a group, to be read only. A group without data has count 0 and NaN for mean, min and max. What
        is not known of one row (min, max, non-finite counts) is not known of its group; a non-finite mean stays.
    """

    def add(weights: Column, of: NDArray[np.integer]) -> Column:
        return _sums(weights, of, groups)

    merged = {
        name: add(columns[name], group) if columns[name].any() else _nothing(groups) for name in _NOT_FINITE
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
        # Means are summed as distances from the first of them: rows that all have the same mean lie at no distance from it, to the last bit.
        near = np.zeros(groups)
        near[group[::-1]] = mean[::-1]
        near[~np.isfinite(near)] = 0
        middle = near + add(n * (mean - near[group]), group) / count
        middles = middle[group]
        d = mean - middles
        # Nor does the only row of a group whose mean is not finite.
        d[mean == middles] = 0
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
        name: column if name not in _NOT_FINITE or column.any() else _nothing(n)
        for name in MOMENT_COLUMNS
        if (column := columns.get(name)) is not None
    }
    none = ~(columns["count"] > 0)
    if "mean" not in columns:
        return merged | {name: _nothing(n) for name in ERROR_COLUMNS}
    # A row is at no distance from itself, but for one whose mean is not known; and 0 times an infinite moment is not known either.
    unknown = np.isnan(columns["mean"])
    d = np.where(unknown, np.nan, 0) if unknown.any() else 0
    with np.errstate(invalid="ignore"):
        m2, m3 = columns["m2"], columns.get("m3")
        merged["m2"] = m2 + d
        if m3 is not None:
            merged["m3"] = m3 + d * m2
            if "m4" in columns:
                merged["m4"] = columns["m4"] + d * m3 + d * m2
    for name, start in (("min", np.inf), ("max", -np.inf)):
        if name in merged:
            merged[name] = np.where(merged[name] == start, np.nan, merged[name])
    if none.any():
        for name in merged.keys() - {*_NOT_FINITE}:
            merged[name] = np.where(none, 0 if name in _ADDED else np.nan, merged[name])
    with np.errstate(invalid="ignore", over="ignore"):
        return merged | _errors(columns, np.arange(n), n, ~none)


def _errors(
    columns: Columns, group: NDArray[np.integer], groups: int, there: NDArray[np.bool_] | None = None
) -> dict[str, Column]:
    """Return :data:`ERROR_COLUMNS`: the worst case of sums of x² and x⁴ that are each off by ``rounding``, see :func:`read_moments`. ``there``: the rows with data, where not all have any."""
    rounding = columns.get("rounding")
    if rounding is None or not (inexact := rounding > 0).any():
        return {name: _nothing(groups) for name in ERROR_COLUMNS}
    if there is not None:
        inexact &= there
    n, mean, m2 = (columns[name][inexact] for name in ("count", "mean", "m2"))
    variance, square = np.maximum(m2 / n, 0), mean * mean
    off, of = rounding[inexact] * n, group[inexact]
    return {
        "m2_error": _sums(3 * off * (variance + square), of, groups),
        "m4_error": _sums(off * (variance * variance + 14 * square * square), of, groups),
    }


def _nothing(groups: int) -> Column:
    # Most rows have only finite values and no rounding: of millions of groups this takes no memory.
    return np.broadcast_to(np.float64(0), groups)


def _sums(weights: Column, group: NDArray[np.integer], groups: int) -> Column:
    # Of no rows numpy would give whole numbers.
    return np.bincount(group, weights, groups).astype(np.float64, copy=False)


def read_moments(columns: Columns, only: str | None = None) -> dict[str, Column]:
    """Return every statistic of rows or groups of which the columns are there; of millions of them ``only`` one costs half: the roots of others are not taken.

    Population statistics (divided by n), kurtosis of a normal distribution 3. NaN stands for no answer: no data, or skewness and kurtosis of values that are all
    the same. A negative M2 (rounding) counts as 0.

    Returns
    -------
    dict
        :data:`MOMENT_STATISTICS`; where the columns have errors also ``variance_error`` and ``kurtosis_error``, the bounds of what raw sums in float32
        leave of them: relative for the variance, absolute for the kurtosis.
    """
    n, mean = columns["count"], columns["mean"]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        m2 = np.maximum(columns["m2"], 0)
        variance = m2 / n
        square = variance + mean * mean
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
                for name in ("min", "max", "count", "nan_count", "inf_count")
                if name in columns
            },
        }
        if only in (None, "std"):
            read["std"] = np.sqrt(variance)
        if only in (None, "l2"):
            read["l2"] = np.sqrt(n * square)
        if only in (None, "rms"):
            read["rms"] = np.sqrt(square)
        if "m2_error" in columns:
            off = columns["m2_error"]
            relative = np.where(off > 0, off / m2, 0) if off.any() else _nothing(len(n))
            read["variance_error"] = relative
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


def moments_from_raw_sums(
    count: Column, sum_1: Column, sum_2: Column, sum_3: Column, sum_4: Column
) -> dict[str, Column]:
    """Return :data:`MOMENT_COLUMNS` of values of which the sums of x to x⁴ are known.

    A sum that is not finite makes only those moments non-finite that need it: one that overflowed in ``sum_4`` leaves mean, deviation and skewness. What else
    is not known (extremes; how many values were NaN or infinite where ``sum_1`` is not finite) is NaN.
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
    }


def raw_sums_from_moments(columns: Columns) -> dict[str, Column]:
    """Return ``count`` (with the non-finite values) and ``sum_1`` to ``sum_4`` as summing the values would have given them.

    A NaN among the values makes every sum NaN; an infinity, of which the sign is not kept, makes the odd sums NaN and the even ones infinite.
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
    for name, total in sums.items():
        total[inf > 0] = np.nan if name in ("sum_1", "sum_3") else np.inf
        total[nan > 0] = np.nan
    return {"count": n + nan + inf, **sums}


def _extreme(choose: np.ufunc, values: Column, group: NDArray[np.integer], groups: int) -> Column:
    start = np.inf if choose is np.minimum else -np.inf
    found = np.full(groups, start)
    # minimum and maximum pass NaN on: what is not known of one row is not known of the group.
    choose.at(found, group, values)
    return np.where(found == start, np.nan, found)
