"""Checking frames one after another: a frame that differs from an earlier one in numbers only needs no second reading."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from .frame import HEADER_BYTES, Frame
from .frame_layout import FrameLayout, Numbers, frame_layout
from .streams import STREAMS, Stream

__all__ = ["CheckedBody", "FrameChecker"]

_MOST_KINDS = 32
_MOST_LAYOUTS = 8
_MOST_FIXED_BYTES = 64 * 1024


class CheckedBody:
    """The rows of a frame that has been checked.

    Parameters
    ----------
    frame : Frame
        The decoded header with its body.
    data : bytes
        The whole frame.
    places : sequence of int
        Where in it the message of each record batch begins; none where another Arrow library wrote it.
    layout : FrameLayout, optional
        Where things are, when that is known.
    table : pyarrow.Table, optional
        The rows; needed without ``places``.
    """

    __slots__ = ("_data", "_frame", "_layout", "_places", "_table")

    def __init__(
        self,
        frame: Frame,
        data: bytes | bytearray,
        places: Sequence[int],
        layout: FrameLayout | None = None,
        table: pa.Table | None = None,
    ) -> None:
        self._frame = frame
        self._data = data
        self._places = tuple(places)
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

    def table(self, *, keep: bool = True) -> pa.Table:
        """Return the rows, which view the frame's memory. Of a small frame they are larger than it is: without ``keep`` they are read again the next time."""
        table = self._table
        if table is None:
            schema, whole = self._frame.schema, pa.py_buffer(self._data)
            batches = [pa.ipc.read_record_batch(whole[at:], schema) for at in self._places]
            table = pa.Table.from_batches(batches, schema)
            if keep:
                self._table = table
        return table

    def release(self) -> None:
        """Let go of all but the frame, for whoever keeps many: what was read of a small one is as large as the frame, and is read again when it is asked for."""
        self._layout = None
        if self._places:
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

    def likeness(self, columns: Sequence[str]) -> tuple[Any, bytes] | None:
        """Return what is the same of two bodies only where all of some columns, of text or plain numbers, is: an object that stands for the text, and the bytes of the numbers. None where that is not known."""
        if self._layout is None:
            return None
        numbers = [self.numbers(name).tobytes() for name in columns if name in self._layout.columns]
        return self._layout, b"".join(numbers)

    def messages(self) -> list[memoryview]:
        """Return the record batches as messages of an Arrow stream."""
        if self._layout is None:
            return [memoryview(batch.serialize()) for batch in self.table().to_batches()]
        begin, end = self._layout.batch
        return [memoryview(self._data)[begin:end]]


class FrameChecker:
    """Checks frames as thoroughly as :meth:`Frame.table`, and what has been checked before only once.

    From step to step most of a frame stays the same, byte for byte: the messages of its Arrow stream, the offsets of its lists, its text. Only
    numbers change, and no number can be wrong. So a frame that equals an earlier, fully checked one in everything but the buffers of its numbers is
    right too, and that takes a comparison. Any other frame is read and checked in full.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], deque[FrameLayout]] = {}

    def check(self, frame: Frame, data: bytes | bytearray) -> CheckedBody:
        """Check the body of a frame.

        Parameters
        ----------
        frame : Frame
            The decoded header of ``data``, of a known stream.
        data : bytes
            The whole frame.

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
        places = [HEADER_BYTES + at for at in in_body]
        table = pa.Table.from_batches(batches, frame.schema)
        if known is None:
            # To remember takes longer than to check: only for what comes again.
            if len(self._known) >= _MOST_KINDS:
                del self._known[next(iter(self._known))]
            self._known[kind] = deque(maxlen=_MOST_LAYOUTS)
        elif len(places) == 1:
            found = frame_layout(data, places[0], batches[0])
            if found is not None and sum(map(len, found.pieces)) <= _MOST_FIXED_BYTES:
                known.append(found)
                return CheckedBody(frame, data, places, found, table)
        return CheckedBody(frame, data, places, None, table)
