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
        self.rows = batch.num_rows
        self.numbers: dict[str, np.ndarray[tuple[int], np.dtype[Any]]] = {
            name: np.frombuffer(self._data, kind, self.rows, at)
            for name, (at, kind) in layout.columns.items()
        }

    def block(self, columns: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[Any]]:
        """Return neighbouring columns of one type together, ``[len(columns), rows]``."""
        each = [self.numbers[name] for name in columns]
        places = [numbers.__array_interface__["data"][0] for numbers in each]
        gaps = {after - before for before, after in pairwise(places)}
        if len({numbers.dtype for numbers in each}) > 1 or len(gaps) > 1:
            raise ValueError(f"Expected neighbouring columns of one type; got {', '.join(columns)}.")
        strides = (*(gaps or {0}), each[0].itemsize)
        at = places[0] - np.frombuffer(self._data, np.uint8).__array_interface__["data"][0]
        return np.ndarray((len(each), self.rows), each[0].dtype, self._data, at, strides)

    def frame(self, *, step: int, seq: int) -> bytes:
        """Return the frame as it is now; ``step`` and ``seq`` as for :func:`encode_frame`."""
        renew_header(self._data, step=step, seq=seq)
        return bytes(self._data)
