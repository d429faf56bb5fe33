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

from .like_heads import LikeHeads, Longs
from .message_piece import MessageField, MessagePiece, UnlikeMessages, is_large

__all__ = ["Choice", "JoinedMessages"]


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
