"""Checks frames one after another: one that differs from an earlier one in numbers only is not read twice.

Checks what a hub sends where it enters: in the relay and in a kernel.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from .errors import ProtocolError
from .frame import HEADER_BYTES, Frame, decode_frame, encode_frame, renew_header
from .messages import decode_message
from .messages_generated import Message
from .streams import STREAMS, Stream, Streams

__all__ = ["CheckedBody", "FROM_HUB", "FrameChecker", "FrameTemplate", "HubReader", "MAX_HUB_BYTES"]


FROM_HUB = ("hello", "configured", "generating", "status", "error", "goodbye")
MAX_HUB_BYTES = 72 * 1024 * 1024
"""Largest message of a hub: the largest frame of a producer, and what else may be merged with it."""


class HubReader:
    """Checks each message of one connection by its schema, their order, and that the run stays the same.

    Attributes
    ----------
    run : str or None
        Id of the run: the one that this hub was found under, or whichever its first ``hello`` names.
    """

    def __init__(self, run: str | None = None) -> None:
        self.run = run
        self._greeted = False

    def message(self, text: str) -> Message:
        """Return a control message.

        Raises
        ------
        ProtocolError
            As :func:`decode_message`; ``bad-message`` for one that comes before ``hello``; ``refused`` for
            the ``hello`` of another run.
        """
        message = decode_message(text, FROM_HUB)
        if message["type"] == "hello":
            run = message["run"]["id"]
            if self.run not in (None, run):
                raise ProtocolError(
                    "refused",
                    "Another hub answers where the hub of this run was.",
                    field="run.id",
                    expected=self.run,
                    got=run,
                )
            self.run, self._greeted = run, True
        elif not self._greeted and message["type"] in ("configured", "generating", "status"):
            raise ProtocolError(
                "bad-message",
                f"A hub sent {message['type']} before hello.",
                expected="hello",
                got=message["type"],
            )
        return message

    def frame(self, data: bytes, streams: Streams = STREAMS) -> Frame:
        """Return the header of a data frame. Its rows are checked by who reads them.

        Raises
        ------
        ProtocolError
            As :func:`decode_frame`; ``bad-frame`` for one that comes before ``hello``.
        """
        if not self._greeted:
            raise ProtocolError("bad-frame", "A hub sent rows before hello.", expected="hello", got="rows")
        return decode_frame(data, streams)


_MOST_KINDS = 32
_MOST_LAYOUTS = 8
_MOST_FIXED_BYTES = 64 * 1024

Numbers = np.ndarray[tuple[int], np.dtype[Any]]

_LENGTH = struct.Struct("<i")


class FrameTemplate:
    """Rows of which only numbers change from frame to frame: encoded once, then the numbers are overwritten.

    ``batch`` are the first rows, at least one, with exactly the stream's schema.

    Attributes
    ----------
    numbers : dict
        Each plain column of numbers, ``[rows]``; what is written there is in the next frame.

    Raises
    ------
    ProtocolError
        ``bad-frame`` when the schema is not the stream's.
    ValueError
        When there are no rows.
    """

    def __init__(self, stream: str, batch: pa.RecordBatch) -> None:
        self._data = bytearray(encode_frame(stream, batch, step=-1))
        batches, offsets = decode_frame(self._data).batches()
        layout = frame_layout(self._data, HEADER_BYTES + offsets[0], batches[0])
        if layout is None:
            raise ValueError(f"Expected at least one row of {stream}; got none.")
        self._columns = layout.columns
        self.rows = layout.rows
        self.numbers = {name: layout.numbers(self._data, name) for name in layout.columns}

    def block(self, columns: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[Any]]:
        """Return neighbouring columns of one type together, ``[len(columns), rows]``."""
        found = [self._columns[name] for name in columns]
        gaps = {after - before for (before, _), (after, _) in pairwise(found)}
        if len({kind for _, kind in found}) > 1 or len(gaps) > 1:
            raise ValueError(f"Expected neighbouring columns of one type; got {', '.join(columns)}.")
        at, kind = found[0]
        strides = (*(gaps or {0}), np.dtype(kind).itemsize)
        return np.ndarray((len(columns), self.rows), kind, self._data, at, strides)

    def frame(self, *, step: int, seq: int) -> bytes:
        """Return the frame as it is now; ``step`` and ``seq`` as for :func:`encode_frame`."""
        renew_header(self._data, step=step, seq=seq)
        return bytes(self._data)


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """A checked frame without its numbers.

    Attributes
    ----------
    starts, pieces : tuple
        Offsets and bytes of all behind the header that is no number: messages, offsets, text, padding.
    columns : dict
        Offset of the numbers of each plain column, and their NumPy type.
    batch : tuple of int
        Where the record batch's message begins and ends.
    """

    rows: int
    starts: tuple[int, ...]
    pieces: tuple[bytes, ...]
    columns: dict[str, tuple[int, str]]
    batch: tuple[int, int]
    texts: dict[str, list[str]] = field(default_factory=dict, compare=False)
    """Columns of text that were asked for: they are the same in every frame of this layout."""

    def numbers(self, data: bytes | bytearray, column: str) -> Numbers:
        """Return a plain column of numbers of a frame of this layout, ``[rows]``, viewing ``data``."""
        at, kind = self.columns[column]
        return np.frombuffer(data, kind, self.rows, at)


def frame_layout(data: bytes | bytearray, message: int, batch: pa.RecordBatch) -> FrameLayout | None:
    """Return the layout of a checked frame of one batch, which views ``data`` and begins at ``message``.

    None when its numbers are not apart from everything else.
    """
    base = pa.py_buffer(data).address
    body = message + 8 + _LENGTH.unpack_from(data, message + 4)[0]
    # The end marker has 8 bytes.
    end = len(data) - 8
    free: list[tuple[int, int]] = []
    bound: list[tuple[int, int]] = []
    columns: dict[str, tuple[int, str]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        holder = column.values if pa.types.is_list(column.type) else column
        buffers = column.buffers()
        if not pa.types.is_string(holder.type):
            numbers = buffers.pop()
            size = len(holder) * holder.type.bit_width // 8
            if size:
                at = numbers.address - base
                free.append((at, at + size))
                if holder is column:
                    sort = "f" if pa.types.is_floating(holder.type) else "i"
                    columns[name] = (at, f"<{sort}{holder.type.bit_width // 8}")
        bound += [(b.address - base, b.address - base + b.size) for b in buffers if b is not None and b.size]
    free.sort()
    taken = sorted([*free, *bound])
    inside = all(body <= begin and stop <= end for begin, stop in free)
    # Numbers that lie over something else would change it with them.
    apart = all(before[1] <= after[0] for before, after in pairwise(taken))
    if not (batch.num_rows and inside and apart):
        return None
    starts = (HEADER_BYTES, *(stop for _, stop in free))
    stops = (*(begin for begin, _ in free), len(data))
    pieces = tuple(bytes(data[start:stop]) for start, stop in zip(starts, stops, strict=True))
    return FrameLayout(batch.num_rows, starts, pieces, columns, (message, end))


class CheckedBody:
    """The rows of a frame that has been checked.

    Parameters
    ----------
    offsets : sequence of int
        Offsets in ``data`` of the message of each record batch; none where another Arrow library wrote it.
    layout : FrameLayout, optional
        Where things are, when that is known.
    table : pyarrow.Table, optional
        The rows; needed without ``offsets``.
    """

    __slots__ = ("_data", "_frame", "_layout", "_offsets", "_table")

    def __init__(
        self,
        frame: Frame,
        data: bytes | bytearray,
        offsets: Sequence[int],
        layout: FrameLayout | None = None,
        table: pa.Table | None = None,
    ) -> None:
        self._frame = frame
        self._data = data
        self._offsets = tuple(offsets)
        self._layout = layout
        self._table = table

    @property
    def declared(self) -> Stream:
        """The declaration of their stream."""
        return self._frame.declared or STREAMS.named(self._frame.stream)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._frame.rows

    def table(self) -> pa.Table:
        """Return the rows, viewing the frame, and keep them: a small frame's are larger than it."""
        if self._table is None:
            schema, buffer = self._frame.schema, pa.py_buffer(self._data)
            batches = [pa.ipc.read_record_batch(buffer[at:], schema) for at in self._offsets]
            self._table = pa.Table.from_batches(batches, schema)
        return self._table

    def release(self) -> None:
        """Keep the frame alone: what was read of it is as large, and is read anew when it is asked for."""
        self._layout = None
        if self._offsets:
            self._table = None

    def numbers(self, column: str) -> Numbers:
        """Return a plain column of numbers."""
        if self._layout is None:
            numbers: Numbers = self.table().column(column).to_numpy()
            return numbers
        return self._layout.numbers(self._data, column)

    def texts(self, column: str) -> list[str]:
        """Return a column of text, read once for each layout."""
        if self._layout is None:
            return self.table().column(column).to_pylist()  # type: ignore[no-any-return]
        known = self._layout.texts.get(column)
        if known is None:
            known = self._layout.texts[column] = self.table().column(column).to_pylist()
        return known

    def all_zero(self, column: str) -> bool:
        """Return whether a plain column of numbers holds zeros only."""
        if self._layout is None:
            return not self.numbers(column).any()
        at, kind = self._layout.columns[column]
        return self._data.startswith(bytes(self.rows * int(kind[-1])), at)

    def messages(self) -> list[memoryview]:
        """Return the record batches as messages of an Arrow stream."""
        if self._layout is None:
            return [memoryview(batch.serialize()) for batch in self.table().to_batches()]
        begin, end = self._layout.batch
        return [memoryview(self._data)[begin:end]]


class FrameChecker:
    """Checks frames as thoroughly as :meth:`Frame.table`, and what has been checked before only once.

    From step to step most of a frame stays the same, byte for byte: the messages of its Arrow stream, the
    offsets of its lists, its text. Only numbers change, and no number can be wrong. So a frame that equals an
    earlier, fully checked one in everything but its numbers is right too. Any other frame is read in full.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], deque[FrameLayout]] = {}

    def check(self, frame: Frame, data: bytes | bytearray) -> CheckedBody:
        """Check the body of a frame of a known stream; ``data`` is the whole frame.

        Raises
        ------
        ProtocolError
            ``bad-frame`` as :meth:`Frame.table`.
        """
        kind = (frame.stream, len(data))
        known = self._known.get(kind)
        for layout in known or ():
            if layout.rows == frame.rows and all(map(data.startswith, layout.pieces, layout.starts)):
                return CheckedBody(frame, data, layout.batch[:1], layout)
        batches, in_body = frame.batches()
        offsets = [HEADER_BYTES + at for at in in_body]
        table = pa.Table.from_batches(batches, frame.schema)
        if known is None:
            # Remembering takes longer than checking: only for what repeats.
            if len(self._known) >= _MOST_KINDS:
                del self._known[next(iter(self._known))]
            self._known[kind] = deque(maxlen=_MOST_LAYOUTS)
        elif len(offsets) == 1:
            found = frame_layout(data, offsets[0], batches[0])
            if found is not None and sum(map(len, found.pieces)) <= _MOST_FIXED_BYTES:
                known.append(found)
                return CheckedBody(frame, data, offsets, found, table)
        return CheckedBody(frame, data, offsets, None, table)
