"""Segments without values: what a bounded recording keeps of its oldest tensors."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..protocol import PARTIAL, SEALED, Empty, Stream
from .segment_file import read_tail, sorted_by_step, write_segment

_SMALL_VALUES = 1024
"""Rows of so many values keep them: token ids and their texts among them."""
WORTH_BYTES = 1000
"""Bytes a row above which most of a file are values."""


def can_be_bare(stream: Stream) -> bool:
    """Return whether rows of a stream have values that can go without their statistics."""
    return {"values", "shape", "compressor"} <= set(stream.schema.names)


def give_up_values(path: Path, stream: Stream, rows: int) -> Path:
    """Replace a segment, or a tail that nobody writes to or seals, by a segment without the large values.

    Who has the old file open reads it to its end. Its rows are then as the compressor ``Empty`` makes them.

    Returns
    -------
    Path
        The segment.

    Raises
    ------
    OSError, HubError, pyarrow.ArrowException
        When it cannot be read or written; the file is then as it was.
    """
    import pyarrow.parquet as pq

    if not path.exists():
        # A sealer that was ended had done it all but for saying so.
        path = path.with_suffix(SEALED)
    if path.suffix == SEALED:
        table = pq.read_table(path, partitioning=None, memory_map=False)
    else:
        with open(path, "rb") as file:
            schema, batches = read_tail(file, path.name, rows)
            table = sorted_by_step(pa.Table.from_batches(batches, schema))
    target = path.with_suffix(SEALED)
    partial = target.with_name(target.name + PARTIAL)
    partial.unlink(missing_ok=True)
    try:
        with open(partial, "xb", buffering=1 << 20) as made:
            bare = _bare(table.combine_chunks())
            write_segment(made, stream, bare.schema, [bare])
            made.flush()
            os.fsync(made.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if path != target:
        path.unlink(missing_ok=True)
    return target


def _bare(table: pa.Table) -> pa.Table:
    """Return rows of which those with many values have none."""
    values = _one(table["values"])
    lengths = np.diff(values.offsets.to_numpy())
    gone = lengths > _SMALL_VALUES
    shape = _one(table["shape"])
    sizes, ends = shape.flatten().to_numpy(zero_copy_only=False).copy(), np.cumsum(np.diff(shape.offsets))
    sizes[ends[gone] - 1] = 0
    texts = np.where(gone, str(Empty()), table["compressor"].to_numpy())
    labels = _one(table["labels"]) if "labels" in table.schema.names else None
    columns = {
        "values": _without(values, gone),
        "shape": pa.ListArray.from_arrays(
            pa.array(np.append(0, ends), pa.int32()), pa.array(sizes, pa.int32())
        ),
        "compressor": pa.array(texts, pa.utf8()),
        **({} if labels is None else {"labels": _without(labels, gone)}),
    }
    for name, column in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, column.cast(field.type))
    return table


def _without(lists: pa.ListArray, gone: np.ndarray) -> pa.ListArray:
    """Return lists of which some are empty."""
    lengths = np.where(gone, 0, np.diff(lists.offsets.to_numpy()))
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    return pa.ListArray.from_arrays(offsets, lists.filter(pa.array(~gone)).flatten())


def _one(column: pa.ChunkedArray) -> pa.ListArray:
    chunk = column.combine_chunks()
    return chunk.chunk(0) if isinstance(chunk, pa.ChunkedArray) else chunk
