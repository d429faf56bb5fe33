"""Many messages of an Arrow stream file read as one batch, and of them only the columns and rows that are asked for.

A training sends a few rows at a time, and Arrow's own reader takes longer for a message than for a hundred of its rows. What one writer writes of one schema has heads that differ in sizes
only (:class:`LikeHeads`), so that NumPy finds a column of thousands of messages at once. Whatever is not as expected is left to Arrow's reader, which says what is wrong with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .gathering import gathered
from .message_map import LikeHeads, Longs

__all__ = ["Choice", "JoinedMessages"]

# Of larger messages only what is asked for is read.
_LARGE_BYTES = 1 << 16
# Parts that are as near to each other are read together.
_NEAR_BYTES = 4096
# Fewer messages are not worth a comparison.
_FEW_MESSAGES = 4


# Neighbouring messages of an Arrow stream file that are laid out alike: columns of some of their rows.
class UnlikeMessages(Exception):
    """Something is not as in other messages."""


def is_large(sizes: Any) -> Any:
    """Whether messages of these bytes are large: only what is asked for of them is read."""
    return sizes > _LARGE_BYTES


class MessageField:
    """A column, or what the lists in one hold: its type, where its length and its buffers stand, and where those of the next do."""

    def __init__(self, name: str, kind: pa.DataType, node: int, buffer: int) -> None:
        self.name, self.kind, self.node, self.buffer = name, kind, node, buffer
        self.child: MessageField | None = None
        self.width = 0
        self.end: tuple[int, int]
        if pa.types.is_list(kind):
            self.child = MessageField(name, kind.value_type, node + 1, buffer + 2)
            self.end = self.child.end
        elif pa.types.is_string(kind):
            self.end = (node + 1, buffer + 3)
        elif (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and kind.bit_width >= 8:
            self.width = kind.bit_width // 8
            self.end = (node + 1, buffer + 2)
        else:
            raise UnlikeMessages


class MessageRuns:
    """Neighbouring entries of a column: of which message, from which on, and how many."""

    def __init__(self, message: Longs, first: Longs, count: Longs) -> None:
        self.message, self.first, self.count = message, first, count
        self.total = int(count.sum())


class MessagePiece:
    """Neighbouring messages. Of large ones only what is asked for is in memory."""

    def __init__(self, file: Any, data: NDArray[np.uint8], messages: Longs) -> None:
        self._file = file
        self._data = data
        self._base = int(messages[0, 0])
        self._begins = messages[:, 0] - self._base
        self._sizes = messages[:, 1] - messages[:, 0]
        self._is_sparse = len(data) > _LARGE_BYTES * len(messages)
        if not self._is_sparse:
            self._load(0, len(data))

    def own_like(self) -> LikeHeads | None:
        """Return what the first message's head is like."""
        self._load(0, 8)
        size = 8 + int(self._data[4:8].view(np.int32)[0])
        if not 8 < size <= self._sizes[0]:
            return None
        self._load(0, size)
        return LikeHeads.of(self._data[:size].tobytes())

    def take_heads(self, like: LikeHeads) -> bool:
        """Read the heads, and say whether they all are like one."""
        if (self._sizes < like.size).any():
            return False
        if self._is_sparse:
            for begin in self._begins.tolist():
                self._load(begin, begin + like.size)
        heads = like.read(self._data.view(np.int64), self._begins // 8)
        bodies = heads[:, like.body]
        if not like.like(heads).all() or (bodies != self._sizes - like.size).any():
            return False
        self._bodies, self._body_sizes = self._begins + like.size, bodies
        self._rows = heads[:, like.rows]
        self._nodes = heads[:, like.nodes : like.nodes + 2 * like.counts[0]]
        self._buffers = heads[:, like.buffers : like.buffers + 2 * like.counts[1]]
        if (self._rows <= 0).any():
            raise UnlikeMessages
        return True

    def all_rows(self) -> MessageRuns:
        """Return all rows."""
        return MessageRuns(np.arange(len(self._rows)), np.zeros(len(self._rows), np.int64), self._rows)

    def is_alike(self, fields: list[MessageField], steps: tuple[int | None, int | None]) -> bool:
        """Whether some columns have the same in all messages, and every step, where that is one of them, is within bounds."""
        if len(self._rows) < _FEW_MESSAGES or self._is_sparse or not self._is_even():
            return False
        for field in fields:
            for buffer in range(field.buffer, field.end[1]):
                part = self._side_by_side(buffer)
                if part is None:
                    return False
                if field.name != "step":
                    is_alike = (part == part[0]).all()
                else:
                    first, last = steps
                    is_alike = (first is None or (part >= first).all()) and (
                        last is None or (part <= last).all()
                    )
                if not is_alike:
                    return False
        return True

    def _side_by_side(self, buffer: int) -> Longs | None:
        """Return a buffer of every message, a row each; None where it lies where it cannot."""
        offset, length = self._buffers[0, 2 * buffer : 2 * buffer + 2].tolist()
        if offset < 0 or length < 0 or offset % 8 or offset + length > self._body_sizes[0]:
            return None
        apart = int(self._sizes[0]) // 8
        lies = np.lib.stride_tricks.as_strided(
            self._data.view(np.int64), (len(self._rows), apart), (8 * apart, 8), writeable=False
        )
        begin = (int(self._bodies[0]) + offset) // 8
        return lies[:, begin : begin - (-length // 8)]

    def _is_even(self) -> bool:
        """Whether all messages are of one size, and everything lies in the same place of each."""
        return bool(
            (self._sizes == self._sizes[0]).all()
            and (self._nodes == self._nodes[0]).all()
            and (self._buffers == self._buffers[0]).all()
        )

    def first_message(self) -> MessageRuns:
        """Return the rows of the first message."""
        return MessageRuns(np.zeros(1, np.int64), np.zeros(1, np.int64), self._rows[:1])

    def repeated(self, rows: Longs) -> MessageRuns:
        """Return some rows of each message, of which all have equally many."""
        found = self.runs_of(rows)
        messages, runs = len(self._rows), len(found.first)
        return MessageRuns(
            np.repeat(np.arange(messages), runs),
            np.tile(found.first, messages),
            np.tile(found.count, messages),
        )

    def runs_of(self, rows: Longs) -> MessageRuns:
        """Return some rows, which are counted through all messages."""
        ends = np.cumsum(self._rows)
        message = np.searchsorted(ends, rows, "right")
        is_new = np.ones(len(rows), bool)
        is_new[1:] = (np.diff(rows) != 1) | (np.diff(message) != 0)
        heads = np.flatnonzero(is_new)
        message = message[heads]
        count = np.diff(np.append(heads, len(rows)))
        return MessageRuns(message, rows[heads] - (ends - self._rows)[message], count)

    def batch(self, fields: list[MessageField], names: list[str], runs: MessageRuns) -> pa.RecordBatch:
        """Return columns of some rows, checked."""
        by_name = {field.name: field for field in fields}
        arrays = []
        for name in names:
            field = by_name[name]
            if (self._nodes[:, 2 * field.node] != self._rows).any():
                raise UnlikeMessages
            arrays.append(self._array(field, runs))
        batch = pa.RecordBatch.from_arrays(arrays, names)
        batch.validate(full=True)
        return batch

    def _array(self, field: MessageField, runs: MessageRuns) -> pa.Array:
        if self._nodes[:, 2 * field.node + 1].any():
            # Nulls, which no stream has.
            raise UnlikeMessages
        if field.width:
            values = self._entries(field.buffer + 1, field.width, runs.message, runs.first, runs.count)
            return pa.Array.from_buffers(field.kind, runs.total, [None, pa.py_buffer(values)])
        offsets, begin, length = self._offsets(field, runs)
        if field.child is None:
            texts = self._entries(field.buffer + 2, 1, runs.message, begin, length)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
            return pa.Array.from_buffers(field.kind, runs.total, buffers)
        there = self._nodes[:, 2 * field.child.node][runs.message]
        if (begin + length > there).any():
            raise UnlikeMessages
        inner = self._array(field.child, MessageRuns(runs.message, begin, length))
        return pa.Array.from_buffers(field.kind, runs.total, [None, pa.py_buffer(offsets)], children=[inner])

    def _offsets(self, field: MessageField, runs: MessageRuns) -> tuple[NDArray[np.int32], Longs, Longs]:
        """Return where texts or lists begin, counted anew, and of each run where they begin in its message and how long they are together."""
        kept = self._entries(field.buffer + 1, 4, runs.message, runs.first, runs.count + 1).view(np.int32)
        after = np.cumsum(runs.count + 1)
        begin = kept[after - runs.count - 1].astype(np.int64)
        end = kept[after - 1].astype(np.int64)
        # Between the last of one run and the first of the next nothing is.
        lengths = np.delete(np.diff(kept), after[:-1] - 1)
        if (begin < 0).any() or (lengths < 0).any():
            raise UnlikeMessages
        offsets = np.zeros(runs.total + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return offsets, begin, end - begin

    def _entries(self, buffer: int, width: int, message: Longs, first: Longs, count: Longs) -> NDArray[Any]:
        """Return the bytes of entries of a buffer, one run after the other."""
        offset, length = self._buffers[:, 2 * buffer][message], self._buffers[:, 2 * buffer + 1][message]
        fits = (offset >= 0) & (offset <= self._body_sizes[message] - length) & (first >= 0)
        if not (fits & (first + count <= length // width)).all() or (offset % 8).any():
            raise UnlikeMessages
        starts, sizes = self._bodies[message] + offset + width * first, width * count
        if self._is_sparse:
            self._load_all(starts, starts + sizes)
        return gathered(self._data, starts, sizes)

    def _load_all(self, starts: Longs, ends: Longs) -> None:
        """Read parts, in the order in which they lie, those that are near to each other at once."""
        filled = ends > starts
        starts, ends = starts[filled], ends[filled]
        if not len(starts):
            return
        if (np.diff(starts) < 0).any():
            raise UnlikeMessages
        edges = np.flatnonzero(starts[1:] - ends[:-1] > _NEAR_BYTES)
        for begin, end in zip(
            starts[np.append(0, edges + 1)].tolist(), ends[np.append(edges, -1)].tolist(), strict=True
        ):
            self._load(begin, end)

    def _load(self, begin: int, end: int) -> None:
        view = memoryview(self._data.data)[begin:end]
        self._file.seek(self._base + begin)
        while view:
            done = self._file.readinto(view)
            if not done:
                # It was cut since it was looked at.
                raise UnlikeMessages
            view = view[done:]


@dataclass(frozen=True)
class Choice:
    """Which rows are wanted.

    Attributes
    ----------
    columns : list of str
        What :attr:`of` looks at.
    of : callable
        Returns the places of the rows of a batch that are wanted, ascending.
    steps : tuple of int or None
        The first and the last step that it lets through.
    """

    columns: list[str]
    of: Callable[[pa.RecordBatch], Longs]
    steps: tuple[int | None, int | None]


# Messages that are read together. Of large ones only what is asked for is read, so that more of them are looked at together.
_PIECE_BYTES = 16 << 20
_PIECE_OF_LARGE_BYTES = 32 << 20


class JoinedMessages:
    """Reads an Arrow stream file whose messages are known.

    Parameters
    ----------
    file : file
        The open file, unbuffered.
    schema : pyarrow.Schema
        The file's own.
    """

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._file = file
        self._fields = _fields_of(schema)
        self._names = schema.names
        self._like: LikeHeads | None = None
        self._room = np.empty(0, np.int64)

    def pieces(self, messages: Longs) -> Iterator[Longs]:
        """Part messages (where each begins and ends, as they lie) into pieces to be read together: neighbours of about one size."""
        at = 0
        while at < len(messages):
            begin, end = messages[at].tolist()
            large = is_large(end - begin)
            most = begin + (_PIECE_OF_LARGE_BYTES if large else _PIECE_BYTES)
            to = at + int(np.searchsorted(messages[at:, 1], most, "right"))
            part = messages[at : max(to, at + 1)]
            breaks = np.flatnonzero(
                (part[1:, 0] != part[:-1, 1]) | (is_large(part[1:, 1] - part[1:, 0]) != large)
            )
            part = part[: breaks[0] + 1] if len(breaks) else part
            yield part
            at += len(part)

    def read(
        self, messages: Longs, columns: list[str], choice: Choice | None = None
    ) -> pa.RecordBatch | None:
        """Return columns of the rows of a piece; None where it has to be read by Arrow, a message at a time.

        Parameters
        ----------
        messages : array
            The piece.
        columns : list of str
            Which columns.
        choice : Choice, optional
            Which rows; all when absent.
        """
        fields = self._fields
        if fields is None:
            return None
        try:
            piece = self._piece(messages)
            if choice is None:
                return piece.batch(fields, columns, piece.all_rows())
            asked = [name for name in choice.columns if name in self._names]
            if piece.is_alike(_named(fields, asked), choice.steps):
                # Choosing from one message is choosing from all.
                chosen = choice.of(piece.batch(fields, asked, piece.first_message()))
                return piece.batch(fields, columns, piece.repeated(chosen))
            seen, runs = piece.batch(fields, asked, piece.all_rows()), piece.all_rows()
            rows = choice.of(seen)
            if len(rows) < seen.num_rows:
                seen, runs = seen.take(pa.array(rows)), piece.runs_of(rows)
            others = piece.batch(fields, [name for name in columns if name not in asked], runs)
            arrays = [(seen if name in asked else others).column(name) for name in columns]
            return pa.RecordBatch.from_arrays(arrays, columns)
        except (UnlikeMessages, struct.error, pa.ArrowInvalid):
            return None

    def _piece(self, messages: Longs) -> MessagePiece:
        begin, size = int(messages[0, 0]), int(messages[-1, 1] - messages[0, 0])
        if begin % 8 or size % 8:
            raise UnlikeMessages
        if len(self._room) < size // 8:
            self._room = np.empty(size // 8, np.int64)
        piece = MessagePiece(self._file, self._room.view(np.uint8)[:size], messages)
        if self._like is None or not piece.take_heads(self._like):
            self._like = piece.own_like()
            if self._like is None or not piece.take_heads(self._like):
                raise UnlikeMessages
        if self._fields is not None and self._like.counts != self._fields[-1].end:
            raise UnlikeMessages
        return piece


def _fields_of(schema: pa.Schema) -> list[MessageField] | None:
    """Return the columns of a schema; None where it has such as no stream of ours has."""
    found: list[MessageField] = []
    end = (0, 0)
    try:
        for each in schema:
            found.append(MessageField(each.name, each.type, *end))
            end = found[-1].end
    except UnlikeMessages:
        return None
    return found or None


def _named(fields: list[MessageField], names: list[str]) -> list[MessageField]:
    return [field for field in fields if field.name in names]
