"""A data frame on its way through the hub."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..protocol import (
    HEADER_BYTES,
    CheckedBody,
    Frame,
    FrameChecker,
    ProtocolError,
    Stream,
    Streams,
    decode_frame,
    restamp_header,
)
from ..protocol.connection import binary_head

Key = tuple[Any, ...]
"""Stream and identity of a row, such as flag, part, layer and rank."""


@dataclass(slots=True, eq=False)
class LiveFrame:
    """One checked frame under the run's sequence number; every viewer is sent the same bytes.

    Attributes
    ----------
    came : bytes or bytearray
        The whole frame, as it came.
    header : bytes
        The header under which it goes on: a large body is never copied for the sake of its header. The one it
        came with when empty.
    body : CheckedBody or None
        Its rows, where they have been checked and nobody asked for its keys yet.
    first_step : int
        Oldest step of its rows; its header has the newest.
    """

    seq: int
    stream: str
    step: int
    rows: int
    came: bytes | bytearray
    header: bytes = b""
    body: CheckedBody | None = field(default=None, repr=False)
    first_step: int = -1
    _keys: frozenset[Key] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        steps = None if self.body is None or not self.rows else self.body.numbers("step")
        self.first_step = self.step if steps is None else min(self.step, int(steps.min()))

    @property
    def size(self) -> int:
        return len(self.came)

    @property
    def data(self) -> bytes | bytearray:
        """The whole frame under its own header, put together."""
        return b"".join(self.pieces()) if self.header else self.came

    def pieces(self) -> tuple[bytes, memoryview]:
        return self.header or bytes(self.came[:HEADER_BYTES]), memoryview(self.came)[HEADER_BYTES:]

    def wire(self) -> tuple[bytes, bytes, memoryview]:
        """Return the frame as a WebSocket message."""
        return binary_head(self.size, masked=False), *self.pieces()

    def keys(self, declared: Stream) -> frozenset[Key]:
        """Return the identity of every row; cached, as only a full queue asks for it."""
        if self._keys is None:
            identity = declared.policy.identity
            body = self.body
            if body is None:
                table = decode_frame(self.came, Streams([declared])).table()
                columns = [table.column(name).to_pylist() for name in identity]
            else:
                texts = {entry.name for entry in declared.schema if pa.types.is_string(entry.type)}
                columns = [
                    body.texts(name) if name in texts else body.numbers(name).tolist() for name in identity
                ]
            self._keys = frozenset(zip(itertools.repeat(self.stream), *columns))
            self.body = None
        return self._keys


def admit_frame(
    checker: FrameChecker, header: Frame, data: bytes | bytearray, seq: int, bits: int = 0
) -> tuple[LiveFrame, CheckedBody]:
    """Check a frame and number it with the run's next ``seq``; return it and its rows, which share its
    memory.

    Raises
    ------
    ProtocolError
        ``bad-frame`` when the rows are not what the stream says.
    """
    body = checker.check(header, data)
    if header.step < -1:
        raise ProtocolError(
            "bad-frame", "The step of a frame is negative.", expected="-1 or more", got=str(header.step)
        )
    stamped = restamp_header(data, seq=seq, bits=bits)
    return LiveFrame(seq, header.stream, header.step, header.rows, data, stamped, body), body
