"""A frame that is sent again and again with other numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from .frame import HEADER_BYTES, decode_frame, encode_frame, renew_header
from .frame_layout import frame_layout

__all__ = ["FrameTemplate"]


class FrameTemplate:
    """Rows of which only numbers change from frame to frame: encoded once, then the numbers are written where they lie.

    Parameters
    ----------
    stream : str
        Stream name.
    batch : pyarrow.RecordBatch
        The first rows, at least one, with exactly the stream's schema.

    Attributes
    ----------
    rows : int
        How many there are.
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
        batches, places = decode_frame(self._data).batches()
        layout = frame_layout(self._data, HEADER_BYTES + places[0], batches[0])
        if layout is None:
            raise ValueError(f"Expected at least one row of {stream}; got none.")
        self._places = layout.columns
        self.rows = layout.rows
        self.numbers = {name: layout.numbers(self._data, name) for name in layout.columns}

    def block(self, columns: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[Any]]:
        """Return neighbouring columns of one type together, ``[len(columns), rows]``."""
        places = [self._places[name] for name in columns]
        gaps = {after - before for (before, _), (after, _) in pairwise(places)}
        if len({kind for _, kind in places}) > 1 or len(gaps) > 1:
            raise ValueError(f"Expected neighbouring columns of one type; got {', '.join(columns)}.")
        at, kind = places[0]
        strides = (*(gaps or {0}), np.dtype(kind).itemsize)
        return np.ndarray((len(columns), self.rows), kind, self._data, at, strides)

    def frame(self, *, step: int, seq: int) -> bytes:
        """Return the frame as it is now; ``step`` and ``seq`` as for :func:`encode_frame`."""
        renew_header(self._data, step=step, seq=seq)
        return bytes(self._data)
