"""The layer trend: one statistic of traced tensors per step and layer; the twin of the browser's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..protocol import merge_moments
from .errors import ClientError
from .moments.grouping.cells import reading_value
from .query import Selection, half_width, selected

_TENSOR_STATISTICS = ("mean", "std", "rms", "min", "max", "skewness", "kurtosis", "nonfinite")
_RETAINED_STATISTICS = ("mean", "std", "rms", "min", "max", "abs_mean")
STATISTICS = (*_TENSOR_STATISTICS, *(f"kept_{name}" for name in _RETAINED_STATISTICS))
TENSOR_ONLY = ("skewness", "kurtosis")
"""Not of stored values: tile means say nothing about a tensor's tails."""
OLDER = {"abs_mean": "kept_abs_mean"}
"""Names of statistics before complete tensors had any."""
_MOMENTS = ("count", "mean", "m2", "m3", "m4", "min", "max", "nan_count", "inf_count")
_SCHEMA = pa.schema(
    [("step", pa.int64()), ("layer", pa.int32()), ("value", pa.float64()), ("count", pa.int64())]
)


def trend(table: pa.Table, statistic: str = "rms", selection: Selection | None = None) -> pa.Table:
    """Reduce traced tensors to one number per step and layer.

    All values of a step and layer count alike, from whichever micro-batch, sample or rank: filter rows
    before. Whole tensors' statistics are merged from their moments. Where a row has none, or a selection
    takes less than everything, the kept values are used: float64 sums, deviations about the group's mean in a
    second pass, no skewness or kurtosis.

    Parameters
    ----------
    table : pyarrow.Table
        Rows of ``tensors``: ``step``, ``layer``, ``values``, optionally the moments of whole tensors.
    statistic : str
        Of the finite values of whole tensors: ``mean``, ``std`` (of the population), ``rms``, ``min``,
        ``max``, ``skewness``, ``kurtosis`` (3 for a normal distribution); ``nonfinite`` counts the others. Of
        what the compressor kept: ``kept_mean`` to ``kept_max``, and ``kept_abs_mean``.
    selection : Selection, optional
        Which values enter, all when absent; ``shape`` and ``compressor`` are then read too.

    Returns
    -------
    pyarrow.Table
        ``step`` int64, ``layer`` int32, ``value`` float64, ``count`` int64 (finite values), ordered by step,
        then layer. ``value`` is NaN where nothing is finite, except for ``nonfinite``. The ``mean`` with an
        interval also has ``half`` float64, half the width of the band, and ``units`` int64, the positions and
        samples it is over.

    Raises
    ------
    ClientError
        ``bad-parameter`` when there is no such statistic.
    """
    statistic = OLDER.get(statistic, statistic)
    if statistic not in STATISTICS:
        known = ", ".join(STATISTICS)
        raise ClientError(
            f"There is no statistic {statistic!r:.100}. Choose one of {known}.",
            code="bad-parameter",
            field="statistic",
        )
    if table.num_rows == 0:
        return _SCHEMA.empty_table()
    steps = table["step"].to_numpy()
    layers = table["layer"].to_numpy()
    order = np.lexsort((layers, steps))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(steps[order]) != 0) | (np.diff(layers[order]) != 0)
    group_of_row = np.empty(len(order), dtype=np.int64)
    group_of_row[order] = np.cumsum(new) - 1
    groups = int(new.sum())
    heads = order[new]
    keys = [pa.array(steps[heads]), pa.array(layers[heads])]
    of_retained = statistic.startswith("kept_")
    statistic = statistic.removeprefix("kept_")
    if selection is not None:
        rows = table.select(["shape", "compressor"]).to_pylist()
        if any(selection.takes_less(row) for row in rows):
            return _selective(table, rows, statistic, selection, group_of_row, keys)

    if not of_retained and set(_MOMENTS) <= set(table.column_names):
        moments = {name: table[name].to_numpy().astype(np.float64) for name in _MOMENTS}
        if not np.isnan(moments["count"]).any():
            merged = merge_moments(moments, group_of_row, groups)
            found = (reading_value(merged, statistic), merged["count"].astype(np.int64))
            return pa.Table.from_arrays(
                [*keys, *(pa.array(column, from_pandas=False) for column in found)], schema=_SCHEMA
            )
    lengths = pc.fill_null(pc.list_value_length(table["values"]), 0).to_numpy()
    values = pc.list_flatten(table["values"]).to_numpy()
    group = np.repeat(group_of_row, lengths)
    finite = np.isfinite(values)
    all_finite = bool(finite.all())
    retained = (values if all_finite else values[finite]).astype(np.float64)
    retained_group = group if all_finite else group[finite]
    count = np.bincount(retained_group, minlength=groups)
    if statistic == "nonfinite":
        result = (np.bincount(group, minlength=groups) - count).astype(np.float64)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            result = _reduce(statistic, retained, retained_group, groups, count)
        result[count == 0] = np.nan
    return pa.Table.from_arrays([*keys, pa.array(result, from_pandas=False), pa.array(count)], schema=_SCHEMA)


def _selective(
    table: pa.Table, rows: list[Any], statistic: str, selection: Selection, groups: Any, keys: list[pa.Array]
) -> pa.Table:
    parts: list[list[Any]] = [[] for _ in range(len(keys[0]))]
    for row, values, group in zip(rows, table["values"], groups, strict=True):
        cut = selected({**row, "values": values.values.to_numpy()}, selection)
        parts[group].append(cut.astype(np.float64))
    value, count, half, units = [], [], [], []
    for cuts in parts:
        everything = np.concatenate([cut.ravel() for cut in cuts])
        finite = everything[np.isfinite(everything)]
        one = np.zeros(len(finite), dtype=np.int64)
        if statistic == "nonfinite":
            value.append(float(len(everything) - len(finite)))
        elif len(finite) == 0:
            value.append(np.nan)
        else:
            value.append(float(_reduce(statistic, finite, one, 1, np.array([len(finite)]))[0]))
        count.append(len(finite))
        means = np.array(
            [unit[np.isfinite(unit)].mean() for cut in cuts for unit in cut if np.isfinite(unit).any()]
        )
        half.append(half_width(means, selection.interval) if selection.interval != "none" else np.nan)
        units.append(len(means))
    result = pa.Table.from_arrays(
        [*keys, pa.array(value, pa.float64(), from_pandas=False), pa.array(count, pa.int64())],
        schema=_SCHEMA,
    )
    if selection.interval != "none" and statistic == "mean":
        result = result.append_column("half", pa.array(half, pa.float64(), from_pandas=False))
        result = result.append_column("units", pa.array(units, pa.int64()))
    return result


def _reduce(statistic: str, values: Any, group: Any, groups: int, count: Any) -> Any:
    def sums(weights: Any) -> Any:
        return np.bincount(group, weights=weights, minlength=groups)

    if statistic == "mean":
        return sums(values) / count
    if statistic == "abs_mean":
        return sums(np.abs(values)) / count
    if statistic == "rms":
        return np.sqrt(sums(values * values) / count)
    if statistic == "std":
        deviation = values - (sums(values) / count)[group]
        return np.sqrt(sums(deviation * deviation) / count)
    if statistic in TENSOR_ONLY:
        return np.full(groups, np.nan)
    result = np.full(groups, np.inf if statistic == "min" else -np.inf)
    (np.minimum if statistic == "min" else np.maximum).at(result, group, values)
    return result
