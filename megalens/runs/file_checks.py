"""Limits on what a recorded file may claim: sizes in memory, rows, and shapes of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..protocol import Stream
from .errors import ClientError

# A recorder's row group has 16 MiB and at most one frame more, so that even a recording of zeros is within
# this.
_ANY_BYTES = 128 * 1024 * 1024
_TIMES = 64
_ANY_ROWS = 2_000_000
_ROWS_A_BYTE = 32


def check_unfolded(name: str, unfolded: int, stored: int) -> None:
    """Raise ``unreadable`` for what unfolds to over 128 MiB and over 64 times what is stored of it.

    A few compressed bytes can stand for any number.
    """
    if unfolded > max(_ANY_BYTES, _TIMES * stored):
        raise _refused(
            name,
            f"{stored:,} bytes of it unfold to {unfolded:,}, and at most {_TIMES} times as many are read",
        )


def check_rows(name: str, rows: int, stored: int) -> None:
    """Raise ``unreadable`` for a file that claims more rows than it can have."""
    if rows < 0 or rows > max(_ANY_ROWS, _ROWS_A_BYTE * stored):
        raise _refused(name, f"it says that it has {rows:,} rows in {stored:,} bytes")


def _refused(name: str, why: str) -> ClientError:
    return ClientError(f"Could not read the run folder. {name}: {why}.", code="unreadable")


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


def check_present(batch: pa.RecordBatch, name: str) -> None:
    """Raise ``unreadable`` for rows without a whole number, a text or a list: no recorder leaves one out."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if column.null_count and not pa.types.is_floating(field.type):
            raise ClientError(
                f"Could not read the run folder. {name}: every row must have {field.name}, and "
                f"{column.null_count:,} of {len(column):,} have none.",
                code="unreadable",
                field=field.name,
            )


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
