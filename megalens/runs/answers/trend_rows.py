"""Moments of traced rows, of complete tensors or of selected stored values, and their exact merging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...protocol import merge_moments
from ..query import Selection, layout_of, positions_in

Column = NDArray[np.float64]
Columns = dict[str, Column]
_MOMENTS = ("count", "mean", "m2", "m3", "m4", "min", "max")
_UNITS = {"unit_count": "count", "unit_mean": "mean", "unit_m2": "m2"}
_SUMMED = ("absolute", "bad")
_CHUNK_VALUES = 1 << 20


def tensor_moments(batch: pa.RecordBatch, names: Sequence[str]) -> Columns | None:
    """Return moments of complete tensors by name, one entry a row; None where a row lacks them."""
    if any(name not in batch.schema.names for name in names):
        return None
    columns: Columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}
    return None if np.isnan(columns["count"]).any() else columns


def retained_moments(batch: pa.RecordBatch, selection: Selection) -> Columns:
    """Return the moments of the selected stored values, one entry a row.

    ``absolute`` is the sum of the magnitudes, ``bad`` how many are not finite; ``unit_count``, ``unit_mean``
    and ``unit_m2`` are the moments of the means of the units: single positions of single samples, or samples
    of a tensor without positions.
    """
    lists = batch.column("values")
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    begins = np.append(0, np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy()))
    kinds = _kinds(batch)
    found: Columns = {name: np.zeros(batch.num_rows) for name in (*_MOMENTS, *_SUMMED, *_UNITS)}
    for kind in np.unique(kinds):
        of_kind = np.flatnonzero(kinds == kind)
        first = int(of_kind[0])
        row = {
            "shape": batch.column("shape")[first].as_py(),
            "compressor": batch.column("compressor")[first].as_py(),
        }
        size = int(begins[first + 1] - begins[first])
        for part in np.array_split(of_kind, max(1, len(of_kind) * size // _CHUNK_VALUES)):
            values = flat[begins[part][:, None] + np.arange(size)]
            for name, column in _moments(_selected(values, row, selection)).items():
                found[name][part] = column
    return found


def _merge_rows(columns: Columns, group: NDArray[np.int64], groups: int) -> Columns:
    """Merge rows into groups, exactly as if their values had been grouped."""
    merged = dict(
        merge_moments(
            {name: columns[name] for name in (*_MOMENTS, "nan_count") if name in columns},
            group,
            groups,
        )
    )
    if "absolute" in columns:
        for name in _SUMMED:
            merged[name] = np.bincount(group, columns[name], groups).astype(np.float64)
        none = np.zeros(len(group))
        units = {"nan_count": none, "inf_count": none} | {of: columns[name] for name, of in _UNITS.items()}
        joined = merge_moments(units, group, groups)
        merged |= {name: joined[of] for name, of in _UNITS.items()}
    return merged


def joined_pieces(pieces: Sequence[Mapping[str, Column]]) -> dict[str, Any]:
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def merged_rows(rows: dict[str, Any]) -> dict[str, Any]:
    """Merge rows of one step and layer, and order them by both."""
    apart = np.diff(rows["step"])
    if not ((apart > 0) | ((apart == 0) & (np.diff(rows["layer"]) > 0))).all():
        order = np.lexsort((rows["layer"], rows["step"]))
        rows = {name: column[order] for name, column in rows.items()}
    new = np.ones(len(rows["step"]), bool)
    new[1:] = (np.diff(rows["step"]) != 0) | (np.diff(rows["layer"]) != 0)
    if new.all():
        return rows
    keys = {name: rows.pop(name)[new] for name in ("step", "layer", "kind")}
    found = _merge_rows(rows, np.cumsum(new) - 1, int(new.sum()))
    return {name: np.asarray(found[name]) for name in rows} | keys


def retained_samples(shapes: pa.ListArray) -> NDArray[np.int64]:
    """Return the first number of each shape; 1 where there is none."""
    offsets = shapes.offsets.to_numpy()
    filled = offsets[1:] > offsets[:-1]
    samples = np.ones(len(shapes), np.int64)
    samples[filled] = shapes.values.to_numpy()[offsets[:-1][filled]]
    return samples


def distinct_columns(pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different columns, and which of them each is."""
    if (pairs == pairs[:, :1]).all():
        return pairs[:, :1], np.zeros(pairs.shape[1], np.int64)
    found, indices = np.unique(pairs, axis=1, return_inverse=True)
    return found, indices.reshape(-1)


def _kinds(batch: pa.RecordBatch) -> NDArray[np.int64]:
    texts = [
        f"{shape}{compressor}"
        for shape, compressor in zip(
            batch.column("shape").to_pylist(), batch.column("compressor").to_pylist(), strict=True
        )
    ]
    known: dict[str, int] = {}
    return np.array([known.setdefault(text, len(known)) for text in texts], np.int64)


def _selected(values: NDArray[np.float32], row: dict[str, Any], selection: Selection) -> NDArray[np.float64]:
    """Return what is selected as [rows, units, values]."""
    layout = layout_of(row, selection.axes)
    cut = values.astype(np.float64).reshape(len(values), layout.outer, layout.length, layout.inner)
    if layout.has_positions and selection.positions.strip() != "all":
        cut = cut[:, :, positions_in(selection.positions, layout.length)]
    if layout.vectors:
        cut = cut[:, :, :, min(selection.vector, layout.vectors - 1) :: layout.vectors]
    return cut.reshape(len(values), cut.shape[1] * cut.shape[2], cut.shape[3])


def _moments(cut: NDArray[np.float64]) -> Columns:
    there = np.isfinite(cut)
    cut = np.where(there, cut, 0.0)
    count, units = there.sum((1, 2)).astype(np.float64), there.sum(2)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = cut.sum((1, 2)) / count
        middle = cut.sum(2) / units
        d = np.where(there, cut - mean[:, None, None], 0.0)
        measured = units > 0
        number = measured.sum(1).astype(np.float64)
        unit_mean = np.where(measured, middle, 0.0).sum(1) / number
        apart = np.where(measured, middle - unit_mean[:, None], 0.0)
    return {
        "count": count,
        "mean": mean,
        "m2": (d**2).sum((1, 2)),
        "m3": (d**3).sum((1, 2)),
        "m4": (d**4).sum((1, 2)),
        "min": np.where(there, cut, np.inf).min((1, 2), initial=np.inf),
        "max": np.where(there, cut, -np.inf).max((1, 2), initial=-np.inf),
        "absolute": np.abs(cut).sum((1, 2)),
        "bad": cut[0].size - count,
        "unit_count": number,
        "unit_mean": unit_mean,
        "unit_m2": (apart**2).sum(1),
    }
