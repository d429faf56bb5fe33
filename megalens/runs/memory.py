"""The rows of one stream in memory, bounded."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from ..protocol import CheckedBody, Stream
from .query import Query

__all__ = ["StreamMemory"]

_BLOCK = 64
_SMALL_BYTES = 64 * 1024
_OBJECTS_BYTES = 600
"""What the objects of a frame take beside its bytes."""


class StreamMemory:
    """Rows in the order of their arrival; past the bound the oldest are given up and counted. The caller locks.

    A frame stays as it came until somebody asks for rows: in most runs nobody looks at most steps.

    Parameters
    ----------
    stream : Stream
        The stream.
    limit_bytes : int, optional
        Bound, as its policy says when absent. The newest frame is always kept.
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
        held = size + _OBJECTS_BYTES
        self._tail.append((body, held))
        self.bytes += held
        self.rows += body.rows
        while self.bytes > self._limit and len(self._blocks) + len(self._tail) > 1:
            if self._blocks:
                block, held = self._blocks.popleft()
                rows = block.num_rows
            else:
                oldest, held = self._tail.popleft()
                rows = oldest.rows
            self.bytes -= held
            self.rows -= rows
            self.evicted_rows += rows

    def table(self) -> pa.Table:
        """Return all rows. Small frames are copied together, once, when they are first asked for."""
        while len(self._tail) >= _BLOCK:
            frames = [self._tail.popleft() for _ in range(_BLOCK)]
            block = pa.concat_tables([body.table() for body, _ in frames])
            held = sum(size for _, size in frames)
            if held <= _BLOCK * _SMALL_BYTES:
                # Many small chunks make every query slow; large ones do not.
                block = block.combine_chunks()
                self.bytes += block.nbytes - held
                held = block.nbytes
            self._blocks.append((block, held))
        tail = [body.table() for body, _ in self._tail]
        return pa.concat_tables([self._empty, *(block for block, _ in self._blocks), *tail])

    def read(self, query: Query) -> pa.Table:
        """Return the rows that match."""
        return query.filter(self.table())
