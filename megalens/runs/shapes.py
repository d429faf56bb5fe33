"""Checks of the column of shapes against a row's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..protocol import Stream
from .errors import ClientError


def entries_of(shapes: pa.ListArray) -> Any:
    """Return the product of each shape; an empty tensor has 0, a shape of no axes 1."""
    lengths = pc.list_value_length(shapes).to_numpy()
    sizes = np.ones(len(shapes))
    axes = pc.list_flatten(shapes).to_numpy().astype(np.float64)
    filled = lengths > 0
    if len(axes):
        starts = np.concatenate([[0], np.cumsum(lengths[filled])[:-1]])
        sizes[filled] = np.multiply.reduceat(axes, starts)
    return np.maximum(sizes, 0)


def check_shapes(batch: pa.RecordBatch, stream: Stream, name: str) -> None:
    """Raise ``unreadable`` for rows whose number of values is not that of their shape: sizes and layouts rely
    on it.

    A stream with several columns of values is not checked: nobody knows which the shape is of.
    """
    shape = stream.policy.shape
    values = [each.name for each in stream.schema if each.type == pa.list_(pa.float32())]
    if shape is None or len(values) != 1 or not {shape, *values} <= set(batch.schema.names):
        return
    shapes, counts = batch.column(shape), pc.list_value_length(batch.column(values[0])).to_numpy()
    wrong = np.flatnonzero(entries_of(shapes) != counts)
    negative = pc.min(pc.list_flatten(shapes)).as_py()
    if len(wrong) or (negative is not None and negative < 0):
        at = int(wrong[0]) if len(wrong) else 0
        raise ClientError(
            f"Could not read the run folder. {name}: {shape} must say how many {values[0]} a row has, "
            f"got {shapes[at].as_py()!s:.100} and {int(counts[at])} of them.",
            code="unreadable",
            field=shape,
        )
