"""Where lines break off, and which of their points are drawn: the twin of ``src/aggregate/decimate.ts``."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol import CheckedBody, Stream
from .moments.grouping.series import keep_extremes, stretches
from .query import Query

Integers = NDArray[np.int64]
Column = NDArray[np.float64]

_WIDER = 1.5

_BLOCK = 64
_SMALL_BYTES = 64 * 1024
_OBJECTS_BYTES = 600
"""What the objects of a frame take beside its bytes."""


class StreamMemory:
    """Rows in the order of their arrival; past the bound the oldest are evicted and counted. The caller
    locks.

    A frame stays encoded until somebody asks for rows: in most runs nobody looks at most steps. The newest
    frame always stays.
    """

    def __init__(self, stream: Stream, limit_bytes: int | None = None) -> None:
        self.bytes = 0
        self.rows = 0
        self.evicted_rows = 0
        self._empty = stream.empty_table()
        self._limit = stream.policy.memory_bytes if limit_bytes is None else limit_bytes
        self._blocks: deque[tuple[pa.Table, int]] = deque()
        self._tail: deque[tuple[CheckedBody, int]] = deque()

    def append(self, body: CheckedBody, size: int) -> None:
        """Add the rows of one frame of ``size`` bytes, which they keep alive."""
        body.release()
        nbytes = size + _OBJECTS_BYTES
        self._tail.append((body, nbytes))
        self.bytes += nbytes
        self.rows += body.rows
        while self.bytes > self._limit and len(self._blocks) + len(self._tail) > 1:
            if self._blocks:
                block, nbytes = self._blocks.popleft()
                rows = block.num_rows
            else:
                oldest, nbytes = self._tail.popleft()
                rows = oldest.rows
            self.bytes -= nbytes
            self.rows -= rows
            self.evicted_rows += rows

    def table(self) -> pa.Table:
        """Return all rows. Small frames are copied together, once, when they are first asked for."""
        while len(self._tail) >= _BLOCK:
            frames = [self._tail.popleft() for _ in range(_BLOCK)]
            block = pa.concat_tables([body.table() for body, _ in frames])
            nbytes = sum(size for _, size in frames)
            if nbytes <= _BLOCK * _SMALL_BYTES:
                # Many small chunks make every query slow; large ones do not.
                block = block.combine_chunks()
                self.bytes += block.nbytes - nbytes
                nbytes = block.nbytes
            self._blocks.append((block, nbytes))
        tail = [body.table() for body, _ in self._tail]
        return pa.concat_tables([self._empty, *(block for block, _ in self._blocks), *tail])

    def read(self, query: Query) -> pa.Table:
        return query.filter(self.table())


def gap_starts(steps: Integers) -> Integers:
    """Return the indices of ascending steps before which steps are missing.

    That is the second of two steps whose distance is more than 1.5 times the larger of the neighbouring
    distances. It needs no knowledge of how often anything is traced.
    """
    distance = np.diff(steps)
    if len(distance) < 2:
        return np.zeros(0, np.int64)
    neighbours = np.maximum(np.append(0, distance[:-1]), np.append(distance[1:], 0))
    return np.flatnonzero(distance > _WIDER * neighbours) + 1


def thin_line(
    steps: Integers, values: Column, starts: Integers, points: int | None
) -> tuple[Integers, Integers]:
    """Choose about ``points`` points (None: all) so that the line looks as it did.

    Of each of ``points`` / 4 equal spans the first, last, least and greatest stay, where values cease to be
    finite, and both ends of every stretch. ``starts`` are the indices at which a stretch begins. Returns the
    ascending indices that stay, and the indices among those at which a stretch begins.
    """
    if points is None or len(values) <= points:
        return np.arange(len(values)), starts
    begins = np.diff(stretches(steps, steps[0], steps[-1], points), prepend=-1) != 0
    finite = np.isfinite(values)
    ceases = ~finite & (begins | np.append(True, finite[:-1]))
    shown: Any = np.where(finite, values, np.nan)
    keep = keep_extremes(np.flatnonzero(begins), shown, ceases)
    keep[starts] = keep[starts - 1] = True
    chosen = np.flatnonzero(keep)
    return chosen, np.searchsorted(chosen, starts)


def line_order(lines: NDArray[Any], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stable order of rows by line, then by step."""
    if (steps[1:] >= steps[:-1]).all():
        # As most come. Small numbers are sorted without comparing them.
        small = lines.min(initial=0) >= -(2**15) and lines.max(initial=0) < 2**15
        return np.argsort(lines.astype(np.int16) if small else lines, kind="stable")
    return np.lexsort((steps, lines))
