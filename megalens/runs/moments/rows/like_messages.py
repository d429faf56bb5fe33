"""Messages of the stream ``moments``, read without Arrow where one like them was read with it."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....protocol import stream_schema
from ....protocol.flatbuffer import message_header
from ...arrow_sizes import check_message_size

__all__ = [
    "MOST_LAYOUTS",
    "LikeMessages",
    "MomentMessage",
    "PartialMessage",
    "Positions",
    "Words",
    "positions_of",
    "read_batch",
    "read_schema",
]

MOST_LAYOUTS = 64
"""Layouts that are remembered: a run has one for each set of tensors that its processes measure together."""

_PREFIX = struct.Struct("<Ii")
_CONTINUATION = 0xFFFFFFFF
_SCHEMA = stream_schema("moments")
_WORDS = tuple(entry.name for entry in _SCHEMA if pa.types.is_string(entry.type))

Positions = slice | NDArray[np.int64]
"""Some rows of a message, ascending."""


class PartialMessage(ValueError):
    """The bytes end within a message. ``size``: the bytes that it has at least."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a message of {size} bytes is not whole")
        self.size = size


@dataclass(frozen=True, eq=False)
class Words:
    """What the rows of a message are of; one object for all messages that say the same.

    Attributes
    ----------
    columns : dict
        ``stat``, ``name`` and ``gradient_stage``.
    stats : dict
        Of each stat its rows.
    """

    columns: dict[str, pa.DictionaryArray]
    stats: dict[str, Positions]

    def __len__(self) -> int:
        return len(self.columns["stat"])

    def names(self, positions: Positions) -> list[str]:
        """Return the different names of some rows."""
        name = self.columns["name"]
        found: list[str] = name.dictionary.take(
            pa.array(np.unique(name.indices.to_numpy()[positions]))
        ).to_pylist()
        return found


@dataclass(frozen=True)
class MomentMessage:
    """One record batch.

    Attributes
    ----------
    end : int
        Where the next message begins.
    words : Words
        What its rows are of.
    column : callable
        Returns a column of numbers.
    """

    end: int
    words: Words
    column: Callable[[str], NDArray[Any]]


@dataclass(frozen=True)
class _Layout:
    """Where things lie in a message, from its beginning."""

    size: int
    words: Words
    texts: list[tuple[int, bytes]] = field(default_factory=list)
    numbers: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def column(self, data: bytes, at: int, name: str) -> NDArray[Any]:
        offset, kind = self.numbers[name]
        return np.frombuffer(data, kind, len(self.words), at + offset)


class LikeMessages:
    """Reads the messages of a stream.

    From step to step a training measures the same tensors, and only the numbers change. A message whose head and texts are, byte for byte, those of one that Arrow has read and checked
    has its numbers where that one has them.
    """

    def __init__(self) -> None:
        # By their heads.
        self._layouts: dict[bytes, list[_Layout]] = {}
        self._count = 0

    def read(self, data: bytes, at: int) -> MomentMessage:
        """Read the message that begins at a place of ``data``.

        Raises
        ------
        PartialMessage
            When ``data`` ends within it.
        EOFError
            At the mark of the stream's end.
        pyarrow.ArrowException, ValueError, struct.error, ClientError
            When it is damaged.
        """
        head = data[at : at + _head_bytes(data, at)]
        for layout in self._layouts.get(head, ()):
            if at + layout.size <= len(data) and all(
                data[at + offset : at + offset + len(text)] == text for offset, text in layout.texts
            ):
                return MomentMessage(at + layout.size, layout.words, partial(layout.column, data, at))
        return self._parsed(data, at, head)

    def _parsed(self, data: bytes, at: int, head: bytes) -> MomentMessage:
        batch, end, base = read_batch(data, at)
        layout = _layout_of(batch, end - at, base)
        if layout is None:
            return MomentMessage(
                end, _words_of(batch), lambda name: batch[name].to_numpy(zero_copy_only=False)
            )
        if self._count >= MOST_LAYOUTS:
            self._layouts.clear()
            self._count = 0
        self._layouts.setdefault(head, []).append(layout)
        self._count += 1
        return MomentMessage(end, layout.words, partial(layout.column, data, at))


def read_schema(data: bytes) -> tuple[pa.Schema, int]:
    """Read the message that a stream begins with; return it and where it ends. Raises as :meth:`LikeMessages.read`."""
    end = _end_of(data, 0)
    return pa.ipc.read_schema(pa.ipc.read_message(data[:end])), end


def read_batch(data: bytes, at: int) -> tuple[pa.RecordBatch, int, int]:
    """Read a message with Arrow, and check all of it; return it, where it ends, and the address in memory of where it begins. Raises as :meth:`LikeMessages.read`."""
    end = _end_of(data, at)
    check_message_size(io.BytesIO(data), "moments.arrows", at, end)
    buffer = pa.py_buffer(data).slice(at, end - at)
    batch = pa.ipc.read_record_batch(pa.ipc.read_message(pa.BufferReader(buffer)), _SCHEMA)
    batch.validate(full=True)
    return batch, end, buffer.address


def _end_of(data: bytes, at: int) -> int:
    body = at + _head_bytes(data, at)
    if len(data) < body:
        raise PartialMessage(body - at)
    end = body + max(0, message_header(memoryview(data)[at + 8 : body])[2])
    if len(data) < end:
        raise PartialMessage(end - at)
    return end


def _head_bytes(data: bytes, at: int) -> int:
    """Return how long the head of a message is."""
    if len(data) < at + 8:
        raise PartialMessage(8)
    marker, length = _PREFIX.unpack_from(data, at)
    if marker == 0 or (marker == _CONTINUATION and length == 0):
        raise EOFError
    if marker != _CONTINUATION or length < 0:
        raise ValueError("no message begins here")
    return 8 + int(length)


def positions_of(keep: NDArray[np.bool_]) -> Positions:
    """Return where something holds; as a slice where these are neighbours, so that a column's are no copy."""
    found = np.flatnonzero(keep)
    if len(found) and found[-1] - found[0] + 1 == len(found):
        return slice(int(found[0]), int(found[-1]) + 1)
    return found


def _words_of(batch: pa.RecordBatch) -> Words:
    columns = {name: batch[name].dictionary_encode() for name in _WORDS}
    codes = columns["stat"].indices.to_numpy()
    known = columns["stat"].dictionary.to_pylist()
    return Words(columns, {stat: positions_of(codes == code) for code, stat in enumerate(known)})


def _layout_of(batch: pa.RecordBatch, size: int, base: int) -> _Layout | None:
    """Return where the columns lie; None where that is not all there is to know: values are missing, or were unpacked."""
    layout = _Layout(size, _words_of(batch))
    for entry, column in zip(_SCHEMA, batch.columns, strict=True):
        validity, *buffers = column.buffers()
        if validity is not None or column.offset:
            return None
        for buffer in buffers:
            if buffer is None or not buffer.size:
                continue
            place = buffer.address - base
            if place < 0 or place + buffer.size > size:
                return None
            if entry.name in _WORDS:
                layout.texts.append((place, buffer.to_pybytes()))
            else:
                layout.numbers[entry.name] = (place, entry.type.to_pandas_dtype())
    return layout
