"""A data frame on its way through the hub."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from ..protocol import HEADER_BYTES, Frame, ProtocolError, decode_frame, restamp_frame

__all__ = ["LiveFrame", "Key", "admit_frame"]

Key = tuple[str, str, int]


@dataclass(slots=True, eq=False)
class LiveFrame:
    """One checked frame under the run's sequence number; every viewer is sent the same bytes.

    Attributes
    ----------
    seq, stream, step, rows : int, str, int, int
        As in its header.
    data : bytes
        The whole frame.
    """

    seq: int
    stream: str
    step: int
    rows: int
    data: bytes
    _keys: frozenset[Key] | None = field(default=None, repr=False)

    @property
    def keys(self) -> frozenset[Key]:
        """Every (flag, part, layer) of a ``tensors`` frame. Read from the body when first asked for, which only a full queue does."""
        if self._keys is None:
            table = decode_frame(self.data).table()
            columns = (table.column(name).to_pylist() for name in ("flag", "part", "layer"))
            self._keys = frozenset(zip(*columns, strict=True))
        return self._keys


def admit_frame(header: Frame, data: bytes, seq: int, bits: int = 0) -> tuple[LiveFrame, pa.Table]:
    """Give a frame its place in the run and decode it once.

    Parameters
    ----------
    header : Frame
        The decoded header of ``data``.
    data : bytes
        The frame as it came.
    seq : int
        The run's next sequence number.
    bits : int
        Header bits.

    Returns
    -------
    LiveFrame, pyarrow.Table
        The frame to pass on and its rows, which view the same memory.

    Raises
    ------
    ProtocolError
        ``bad-frame`` when the rows are not what the stream says.
    """
    stamped = restamp_frame(data, seq=seq, bits=bits)
    # The rows view what is kept and sent on, so that the frame as it came can go.
    table = replace(header, body=memoryview(stamped)[HEADER_BYTES:]).table()
    if header.step < -1:
        raise ProtocolError(
            "bad-frame", "The step of a frame is negative.", expected="-1 or more", got=str(header.step)
        )
    return LiveFrame(seq, header.stream, header.step, header.rows, stamped), table
