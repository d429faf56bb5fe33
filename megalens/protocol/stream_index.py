"""The small index that lies beside a recorded stream while it grows: where its messages end, which steps they
have, and what their rows are of.

It only spares reading: whoever finds it missing, cut short, damaged or of another file reads the stream
itself. protocol/README.md describes the file.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .frame_checker import CheckedBody
from .outside import open_plain, parse_json

__all__ = [
    "FIRST_BYTES",
    "IndexWriter",
    "StreamIndex",
    "index_path",
    "indexed_columns",
    "kind_rows",
    "read_index",
]

FIRST_BYTES = 1 << 16
"""So much of a stream's first record batch tells the stream from another one."""

_MAGIC = b"MLNSIDX1"
_HEADER = struct.Struct("<8sqQQ")
_ENTRY = struct.Struct("<qqqII")
_SIZE = 32
_MOST_BYTES = 256 << 20
_MOST_KINDS = 64
_MOST_KIND_BYTES = 1 << 20
_MASK = (1 << 64) - 1
_FACTOR = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class StreamIndex:
    """What an index says.

    Attributes
    ----------
    begin, first : int
        Where the first record batch begins, and what tells it from another file's: see :func:`first_of`.
    messages : array
        Of each record batch where it ends, its first and last step, and its kind; 0 is none,
        ``[messages, 4]``.
    kinds : dict
        By number the different rows that messages of a kind have, without their steps: columns of
        :func:`indexed_columns`, and how often each comes as ``rows``.
    """

    begin: int
    first: int
    messages: NDArray[np.int64]
    kinds: dict[int, dict[str, list[Any]]] = field(default_factory=dict)


def index_path(stream: Path) -> Path:
    """Return where the index of a growing stream's file lies."""
    return stream.with_suffix(".index")


def indexed_columns(schema: pa.Schema) -> list[str]:
    """Return the columns whose values a kind names: text and whole numbers of 32 bits say what a row is
    of.
    """
    return [each.name for each in schema if pa.types.is_string(each.type) or each.type == pa.int32()]


class IndexWriter:
    """Writes an index as its stream is written.

    Parameters
    ----------
    path : Path
        The file; one that is there is replaced.
    schema : pyarrow.Schema
        Of the stream.
    begin : int
        Where its first record batch begins.
    message : bytes
        That batch's beginning, of at most :data:`FIRST_BYTES`.

    Raises
    ------
    OSError
        When it cannot be written, here and in :meth:`add`.
    """

    def __init__(self, path: Path, schema: pa.Schema, begin: int, message: bytes) -> None:
        self._columns = indexed_columns(schema)
        self._first = zlib.crc32(message)
        self._kinds: dict[bytes, int] = {}
        self._known: dict[tuple[int, bytes], tuple[int, Any]] = {}
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        self._file.write(_HEADER.pack(_MAGIC, begin, self._first, _checked(self._first, begin)))

    def add(self, begin: int, body: CheckedBody, messages: Sequence[memoryview]) -> None:
        """Add the messages that were written of a body, from a place of the file on."""
        likeness = body.likeness(self._columns) if len(messages) == 1 else None
        if likeness is not None:
            step = body.numbers("step")
            end = begin + len(messages[0])
            layout, numbers = likeness
            # Of which object that was is known for as long as it is held.
            known = self._known.get((id(layout), numbers))
            if known is not None:
                self._file.write(self._entry(end, int(step.min()), int(step.max()), known[0]))
                return
        batches = body.table(keep=False).to_batches()
        if len(batches) != len(messages):
            raise ValueError(f"Expected {len(messages)} batches, got {len(batches)}.")
        for batch, message in zip(batches, messages, strict=True):
            begin += len(message)
            kind = self._add(begin, batch)
        if likeness is not None and len(self._known) < _MOST_KINDS:
            self._known[id(layout), numbers] = (kind, layout)

    def _add(self, end: int, rows: pa.RecordBatch) -> int:
        text, kind = b"", 0
        if self._columns:
            key = _bytes_of(rows, self._columns)
            kind = self._kinds.get(key, 0)
            if not kind and len(self._kinds) < _MOST_KINDS and len(key) <= _MOST_KIND_BYTES:
                kind = self._kinds[key] = len(self._kinds) + 1
                text = _kind_text(rows, self._columns)
        step = rows.column(0).to_numpy()
        entry = self._entry(end, int(step.min()), int(step.max()), kind)
        if text:
            text += b" " * (-len(text) % _SIZE)
            entry = self._entry(-len(text), kind, zlib.crc32(text), 0) + text + entry
        self._file.write(entry)
        return kind

    def close(self) -> None:
        """Close the file. Safe twice."""
        self._file.close()

    def _entry(self, end: int, low: int, high: int, kind: int) -> bytes:
        return _ENTRY.pack(end, low, high, kind, _checked(self._first, end, low, high, kind) >> 32)


def read_index(path: Path) -> StreamIndex | None:
    """Read an index up to where it is whole; None where there is none. Nothing of it is compared with the
    stream.

    Raises
    ------
    OSError
        When it cannot be read, or is no plain file.
    """
    try:
        with open_plain(path) as file:
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                return None
            data = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return None
    if len(data) < _SIZE:
        return None
    magic, begin, first, check = _HEADER.unpack_from(data)
    if magic != _MAGIC or check != _checked(first, begin) or begin < 0:
        return None
    entries = np.frombuffer(data, np.int64, len(data) // _SIZE * 4).reshape(-1, 4)[1:]
    found = entries.copy()
    found[:, 3] = entries[:, 3] & 0xFFFFFFFF
    good = (entries[:, 3].view(np.uint64) >> 32) == (_checked(first, *found.view(np.uint64).T) >> 32)
    kept, kinds, at = [], {}, 0
    # A kind takes the place of some entries, and stands before the first message of it.
    for place in [*np.flatnonzero(good & (found[:, 0] < 0)).tolist(), len(found)]:
        if place < at:
            continue
        part = found[at:place]
        whole = part if good[at:place].all() else part[: int(np.argmin(good[at:place]))]
        kept.append(whole)
        if len(whole) < len(part) or place == len(found):
            break
        size, number, crc = (int(value) for value in found[place, :3])
        at = place + 1 - size // _SIZE
        kind = _read_kind(data[_SIZE * (place + 2) : _SIZE * (place + 2) - size], -size, crc)
        if kind is None or not 1 <= number <= _MOST_KINDS:
            break
        kinds[number] = kind
    messages = np.concatenate(kept) if kept else found[:0]
    rises = np.diff(messages[:, 0], prepend=begin) > 0
    if not rises.all():
        messages = messages[: int(np.argmin(rises))]
    return StreamIndex(begin, first, messages, kinds)


def kind_rows(kind: dict[str, list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return what an index says of a kind as rows: the indexed columns of the stream, and ``rows``.

    Raises
    ------
    pyarrow.ArrowException, TypeError, ValueError, OverflowError
        When that cannot be.
    """
    fields = [schema.field(name) for name in indexed_columns(schema)]
    said = pa.schema([*(pa.field(each.name, each.type) for each in fields), pa.field("rows", pa.int64())])
    found = pa.RecordBatch.from_pydict({name: kind[name] for name in said.names if name in kind}, schema=said)
    if any(column.null_count for column in found.columns):
        raise ValueError("Expected a value in every row of a kind, got none.")
    return found


def _checked(first: Any, *numbers: Any) -> Any:
    """Return a number of 64 bits that is another one where one of the numbers is; of arrays one for each
    entry.
    """
    found = first
    for number in numbers:
        found = ((found ^ (number & _MASK)) * _FACTOR) & _MASK
        found = found ^ (found >> 29)
    return found


def _bytes_of(rows: pa.RecordBatch, columns: list[str]) -> bytes:
    parts = []
    for name in columns:
        column = rows.column(name)
        # Buffers are those of the whole of which a column may be a part.
        parts.append(b"%d %d" % (column.offset, len(column)))
        parts += [buffer.to_pybytes() for buffer in column.buffers() if buffer is not None]
    return b"|".join(parts)


def _kind_text(rows: pa.RecordBatch, columns: list[str]) -> bytes:
    found = (
        pa.Table.from_batches([rows])
        .select(columns)
        .group_by(columns, use_threads=False)
        .aggregate([([], "count_all")])
    )
    said = {name: found[name].to_pylist() for name in columns}
    return json.dumps({**said, "rows": found["count_all"].to_pylist()}).encode()


def _read_kind(text: bytes, size: int, crc: int) -> dict[str, list[Any]] | None:
    if len(text) != size or zlib.crc32(text) != crc:
        return None
    try:
        said = parse_json(text)
    except ValueError:
        return None
    if not isinstance(said, dict) or not all(isinstance(column, list) for column in said.values()):
        return None
    counts = said.get("rows")
    if not isinstance(counts, list) or not all(type(count) is int and count > 0 for count in counts):
        return None
    return said if all(len(column) == len(counts) for column in said.values()) else None
