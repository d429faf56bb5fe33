"""The frames of a hub that arrived: their rows in bounded memory, and the gaps between their numbers."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from ..protocol import BIT_CAUGHT_UP, BIT_MERGED, STREAMS, CheckedBody, Frame, FrameChecker, Stream, Streams
from .query import Query

_BLOCK = 64
_SMALL_BYTES = 64 * 1024
_OBJECTS_BYTES = 600
"""Memory of the objects of a frame, besides its bytes."""


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


class Arrivals:
    """All frames of a hub: rows by stream, the newest steps, and counts of what is missing. The caller locks.

    Attributes
    ----------
    newest, newest_tensors : int
        Newest step of any frame that marks one, and of traced tensors.
    seq, expected : int
        Newest frame number, and the next one that should come; None before the first.
    received, missed, unannounced : int
        Frames that arrived, that did not, and of these the ones that the hub has not announced as dropped.
    """

    def __init__(self, limit_bytes: int | None) -> None:
        self.streams = Streams(STREAMS.values())
        self.memory = {name: StreamMemory(stream) for name, stream in self.streams.items()}
        if limit_bytes is not None:
            self.memory["tensors"] = StreamMemory(STREAMS["tensors"], limit_bytes)
        self._checker = FrameChecker()
        self.newest = self.newest_tensors = self.seq = 0
        self.expected: int | None = None
        self.received = self.missed = self.unannounced = 0

    @property
    def evicted_rows(self) -> int:
        return sum(memory.evicted_rows for memory in self.memory.values())

    def checked(self, frame: Frame, data: bytes) -> CheckedBody | None:
        """Return the rows of a frame, None of an unknown stream; raises ``ProtocolError``. Needs no lock."""
        return self._checker.check(frame, data) if frame.known else None

    def add(self, frame: Frame, body: CheckedBody | None, size: int) -> None:
        """Count a frame of ``size`` bytes, and store its rows."""
        self.received += 1
        if not frame.bits & BIT_CAUGHT_UP:
            if self.expected is not None and frame.seq > self.expected and not frame.bits & BIT_MERGED:
                self.missed += frame.seq - self.expected
                self.unannounced += frame.seq - self.expected
            self.expected = frame.seq + 1
        self.seq = max(self.seq, frame.seq)
        if frame.declared is None or frame.declared.policy.marks_step:
            # A change is audited at the step that it waits for, which a paused training has not begun.
            self.newest = max(self.newest, frame.step)
        if frame.stream == "tensors":
            self.newest_tensors = max(self.newest_tensors, frame.step)
        if body is not None:
            if frame.stream not in self.memory:
                self.memory[frame.stream] = StreamMemory(body.declared)
            self.memory[frame.stream].append(body, size)

    def count_of(self, stream: str) -> int:
        """Return how many rows of a stream have arrived, the evicted ones too."""
        memory = self.memory.get(stream)
        return 0 if memory is None else memory.rows + memory.evicted_rows

    def evicted(self, stream: str) -> int:
        """Return how many rows of a stream were evicted."""
        memory = self.memory.get(stream)
        return 0 if memory is None else memory.evicted_rows

    def table(self, stream: str) -> pa.Table:
        memory = self.memory.get(stream)
        # A run that was not reached yet has named no other streams.
        declared = self.streams.named(stream)
        return declared.empty_table() if memory is None else memory.table()
