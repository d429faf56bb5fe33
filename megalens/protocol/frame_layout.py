"""Where the numbers of a frame are, and everything else."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from .frame import HEADER_BYTES

__all__ = ["FrameLayout", "Numbers", "frame_layout"]

Numbers = np.ndarray[tuple[int], np.dtype[Any]]

_LENGTH = struct.Struct("<i")


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """A checked frame without its numbers.

    Attributes
    ----------
    rows : int
        Its rows.
    starts, pieces : tuple
        Everything behind the header that is no number: where it is and what it is. Messages, offsets, text, padding.
    columns : dict
        Where the numbers of each plain column begin, and their NumPy type.
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
    """Return the layout of a checked frame of one batch; None when its numbers are not apart from everything else.

    Parameters
    ----------
    data : bytes or bytearray
        The whole frame.
    message : int
        Where the record batch's message begins.
    batch : pyarrow.RecordBatch
        Its rows, viewing ``data``.
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
