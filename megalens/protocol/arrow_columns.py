"""Arrow columns of plain values, made without pandas.

The first ``pyarrow.array`` of a process imports pandas, which stops a training for a quarter of a second.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = [
    "CONTINUATION",
    "MESSAGE_PREFIX",
    "arrow_batch",
    "arrow_column",
    "message_header",
    "table_field",
    "u32",
]

_NUMBERS: dict[Any, np.dtype[Any]] = {
    pa.int32(): np.dtype("<i4"),
    pa.int64(): np.dtype("<i8"),
    pa.float32(): np.dtype("<f4"),
    pa.float64(): np.dtype("<f8"),
}

MESSAGE_PREFIX = struct.Struct("<Ii")
"""What every message of an Arrow stream begins with: :data:`CONTINUATION`, and the length of its metadata."""
CONTINUATION = 0xFFFFFFFF
_LONG = struct.Struct("<q")


def arrow_column(values: Any, kind: pa.DataType | None = None) -> pa.Array:
    """Return a column as ``pyarrow.array(values, kind)`` does, errors too; numpy's numbers are not copied.

    ``kind`` is an array's own type when absent. Types that no stream has, and values that do not fit, are
    left to pyarrow.
    """
    if kind is None:
        kind = pa.from_numpy_dtype(values.dtype)
    try:
        made = _made(values, kind)
    except (TypeError, ValueError, OverflowError, AttributeError):
        made = None
    return pa.array(values, kind) if made is None else made


def arrow_batch(columns: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns by name as a batch, as ``pyarrow.RecordBatch.from_pydict`` does."""
    names = set(schema.names)
    if columns.keys() != names or not all(hasattr(each, "__len__") for each in columns.values()):
        return pa.RecordBatch.from_pydict(dict(columns), schema=schema)
    arrays = [
        columns[field.name]
        if isinstance(columns[field.name], pa.Array)
        else arrow_column(columns[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _made(values: Any, kind: pa.DataType) -> pa.Array | None:
    wanted = _NUMBERS.get(kind)
    if wanted is not None:
        return _numbers(values, kind, wanted)
    if pa.types.is_string(kind):
        texts = [text.encode("utf-8") for text in values]
        return pa.Array.from_buffers(
            kind, len(texts), [None, _buffer(_offsets(texts)), pa.py_buffer(b"".join(texts))]
        )
    if pa.types.is_list(kind):
        rows = list(values)
        flat: Any = list(chain.from_iterable(rows))
        inner = _made(flat, kind.value_type)
        if inner is None:
            return None
        return pa.Array.from_buffers(kind, len(rows), [None, _buffer(_offsets(rows))], children=[inner])
    return None


def _numbers(values: Any, kind: pa.DataType, wanted: np.dtype[Any]) -> pa.Array | None:
    given = np.asarray(values)
    if given.ndim != 1:
        return None
    if len(given) and given.dtype != wanted:
        integer = wanted.kind == "i"
        # What would lose something, or is no number at all, is pyarrow's to judge.
        if given.dtype.kind not in ("i" if integer else "if") or (
            integer and (given.min() < np.iinfo(wanted).min or given.max() > np.iinfo(wanted).max)
        ):
            return None
    return pa.Array.from_buffers(kind, len(given), [None, _buffer(np.ascontiguousarray(given, wanted))])


def _offsets(parts: Sequence[Any]) -> np.ndarray:
    ends = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError("a column of more than 2 GiB")
    return ends.astype(np.int32)


def _buffer(numbers: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(numbers)


# Just enough of FlatBuffers to look into the metadata of an Arrow message without reading its body.
def message_header(metadata: memoryview) -> tuple[int, int, int]:
    """Return header type, offset of the header and body length out of the flatbuffer ``Message``.

    Raises
    ------
    struct.error
        When it ends too early.
    """
    table = u32(metadata, 0)
    kind_at, header_at, size_at = (table_field(metadata, table, number) for number in (1, 2, 3))
    kind = metadata[kind_at] if 0 < kind_at < len(metadata) else 0
    header = header_at + u32(metadata, header_at) if header_at else 0
    return kind, header, _LONG.unpack_from(metadata, size_at)[0] if size_at else 0


def table_field(metadata: memoryview, table: int, number: int) -> int:
    """Return the offset of a field of a flatbuffer table, 0 when it is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if vtable < 0:
        raise struct.error
    slot = 4 + 2 * number
    if slot + 2 > struct.unpack_from("<H", metadata, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", metadata, vtable + slot)[0]
    return table + offset if offset else 0


def u32(metadata: memoryview, at: int) -> int:
    """Return the unsigned number of 32 bits at an offset."""
    return int(struct.unpack_from("<I", metadata, at)[0])
