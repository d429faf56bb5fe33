"""The rows of one stream in memory, bounded."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from ..protocol import empty_table
from .query import Query

__all__ = ["StreamMemory"]

_BLOCK = 64


class StreamMemory:
    """Rows in the order of their arrival; past the bound the oldest are given up and counted. The caller locks.

    Parameters
    ----------
    stream : str
        Stream name.
    limit_bytes : int
        Bound. The newest frame is always kept.
    """

    def __init__(self, stream: str, limit_bytes: int) -> None:
        self.bytes = 0
        self.rows = 0
        self.evicted_rows = 0
        self._empty = empty_table(stream)
        self._limit = limit_bytes
        self._blocks: deque[tuple[pa.Table, int]] = deque()
        self._tail: list[tuple[pa.Table, int]] = []

    def append(self, table: pa.Table, size: int) -> None:
        """Add the rows of one frame of ``size`` bytes, which they keep alive."""
        self._tail.append((table, size))
        self.bytes += size
        self.rows += table.num_rows
        if len(self._tail) == _BLOCK:
            # Many small chunks make every query slow; each row is copied here once.
            merged = pa.concat_tables([entry for entry, _ in self._tail]).combine_chunks()
            self.bytes += merged.nbytes - sum(held for _, held in self._tail)
            self._blocks.append((merged, merged.nbytes))
            self._tail.clear()
        while self.bytes > self._limit and len(self._blocks) + len(self._tail) > 1:
            oldest, held = self._blocks.popleft() if self._blocks else self._tail.pop(0)
            self.bytes -= held
            self.rows -= oldest.num_rows
            self.evicted_rows += oldest.num_rows

    def table(self) -> pa.Table:
        """Return all rows without copying them."""
        return pa.concat_tables([self._empty, *(t for t, _ in self._blocks), *(t for t, _ in self._tail)])

    def read(self, query: Query) -> pa.Table:
        """Return the rows that match."""
        return query.filter(self.table())
