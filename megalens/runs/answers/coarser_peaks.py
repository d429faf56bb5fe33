"""Attention as ``Peaks`` would have stored it with fewer cells: enough for a first picture of a long text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...protocol import Peaks

SHAPE_COLUMNS = ["compressor", "source_shape", "shape"]
"""Columns that determine how coarse a row may become."""

CHANGED_COLUMNS = ["compressor", "shape", "values", "compression_error"]
"""Columns that differ in a coarser row."""

_PEAKS = re.compile(r"Peaks\(cells=([1-9][0-9]{0,4})\)")


def coarser_shape(
    compressor: str, source: Sequence[int], shape: Sequence[int], cells: int
) -> list[int] | None:
    """Return the shape of a row with at most ``cells`` blocks along queries and keys.

    ``source`` is the shape of the tensor, ``shape`` that of the stored one; both end with queries and keys.
    None where the row stays as it is: it is of another compressor, or as coarse already.
    """
    match = _PEAKS.fullmatch(compressor)
    if match is None or len(source) != 4 or len(shape) != 4 or min(source) < 1:
        return None
    before, after = Peaks(int(match[1])), Peaks(cells)
    # All blocks begin at the first position and sides are powers of two, so that coarser ones merge finer
    # ones.
    if [math.ceil(length / before.side(length)) for length in source[2:]] != list(shape[2:]):
        return None
    coarse = [
        *shape[:2],
        *(math.ceil(length / max(before.side(length), after.side(length))) for length in source[2:]),
    ]
    return None if coarse == list(shape) else coarse


def coarser_shapes(batch: pa.RecordBatch, cells: int) -> list[list[int] | None]:
    compressors, sources, shapes = (batch.column(name).to_pylist() for name in SHAPE_COLUMNS)
    return [
        coarser_shape(compressor, source, shape, cells)
        for compressor, source, shape in zip(compressors, sources, shapes, strict=True)
    ]


def coarser_rows(batch: pa.RecordBatch, cells: int) -> pa.RecordBatch:
    """Return rows of ``tensors`` with at most ``cells`` blocks an axis; they have the largest value."""
    shapes = coarser_shapes(batch, cells)
    if not any(shapes):
        return batch
    changed: dict[str, list[Any]] = {
        name: batch.column(name).to_pylist() for name in CHANGED_COLUMNS if name != "values"
    }
    values = [scalar.values.to_numpy() for scalar in batch.column("values")]
    for at, shape in enumerate(shapes):
        if shape is not None:
            values[at] = _largest(values[at].reshape(changed["shape"][at]), shape).ravel()
            changed["compressor"][at] = f"{Peaks(cells)} of {changed['compressor'][at]}"
            changed["shape"][at] = shape
            changed["compression_error"][at] = math.nan
    for name, column in [*changed.items(), ("values", values)]:
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, batch.schema.field(at), pa.array(column, batch.schema.field(at).type))
    return batch


def _largest(values: npt.NDArray[np.float32], shape: Sequence[int]) -> npt.NDArray[np.float32]:
    """Return the largest of each block of the last two axes; NaN where there is one."""
    down, across = (_factor(*lengths) for lengths in zip(values.shape[2:], shape[2:], strict=True))
    lacking = [(0, 0), (0, 0), (0, -values.shape[2] % down), (0, -values.shape[3] % across)]
    padded = np.pad(values, lacking, constant_values=-np.inf)
    blocks = padded.reshape(*shape[:3], down, shape[3], across)
    largest: npt.NDArray[np.float32] = blocks.max(axis=(3, 5))
    return largest


def _factor(finer: int, coarser: int) -> int:
    """Return the power of two by which blocks grew."""
    return 1 << max(0, math.ceil(finer / coarser) - 1).bit_length()
