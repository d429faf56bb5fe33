"""The backlog of a viewer that comes late or reconnects: complete streams, newest frames of the others."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ..protocol import (
    BIT_CAUGHT_UP,
    BIT_MERGED,
    STREAMS,
    Stream,
    Streams,
    decode_frame,
    encode_frame,
    restamp_frame,
)
from .live_frame import LiveFrame

_MERGE_FRAMES = 512
_MERGE_ROWS = 16384
_MERGE_BYTES = 4 * 1024 * 1024
_WORTH_MERGING = 16
_LOG_FRAMES = 65536


@dataclass(frozen=True)
class Backlog:
    """What one viewer is sent before live frames.

    Attributes
    ----------
    pieces : list
        What to send, oldest first; :meth:`frames` makes the bytes one at a time.
    missed_frames, missed_rows : int
        Frames after ``since`` that are no longer there or were left out.
    first_step, last_step : int or None
        Steps that these frames span.
    """

    pieces: list[tuple[LiveFrame | _Merged, int]]
    missed_frames: int
    missed_rows: int
    first_step: int | None
    last_step: int | None

    def frames(self) -> Iterator[bytes]:
        """Yield the frames, marked *caught up*."""
        for piece, since in self.pieces:
            if isinstance(piece, _Merged):
                yield piece.after(since)
            else:
                bits = decode_frame(piece.data).bits
                yield restamp_frame(piece.data, seq=piece.seq, bits=bits | BIT_CAUGHT_UP)


@dataclass(frozen=True, slots=True)
class _Merged:
    """Consecutive frames of one stream in one, with where each of them ends."""

    declared: Stream
    seqs: np.ndarray[tuple[int], np.dtype[np.int64]]
    row_ends: np.ndarray[tuple[int], np.dtype[np.int64]]
    data: bytes

    @property
    def stream(self) -> str:
        return self.declared.name

    @property
    def seq(self) -> int:
        return int(self.seqs[-1])

    @property
    def rows(self) -> int:
        return int(self.row_ends[-1])

    def after(self, since: int) -> bytes:
        count = int(np.searchsorted(self.seqs, since, side="right"))
        if count == 0:
            return self.data
        frame = decode_frame(self.data, Streams([self.declared]))
        return encode_frame(
            self.declared,
            frame.table().slice(int(self.row_ends[count - 1])),
            step=frame.step,
            seq=frame.seq,
            time_us=frame.time_us,
            bits=frame.bits,
        )


class StreamHistory:
    """The hub's catch-up buffer.

    A frame is merged with its neighbours of the same stream only when no other stored frame lies between
    them. So whatever a viewer has been sent so far is everything up to one sequence number, and a connection
    that breaks during catch-up loses and repeats nothing.

    ``limit`` is in bytes of frames of each stream of which only the newest are stored; its policy may ask for
    fewer.
    """

    def __init__(self, limit: int, streams: Streams = STREAMS) -> None:
        self.limit = limit
        self._streams = streams
        self._old: list[LiveFrame | _Merged] = []
        self._open: list[LiveFrame | _Merged] = []
        self._open_rows = self._open_bytes = 0
        # By sequence number. Begins with a frame of a bounded stream whenever it is not empty.
        self._recent: OrderedDict[int, LiveFrame | _Merged] = OrderedDict()
        self._tail: list[LiveFrame] = []
        self._tail_bytes = 0
        self._bounded: dict[str, _Bounded] = {}

    def append(self, frame: LiveFrame) -> None:
        """Store one frame. Sequence numbers must rise."""
        policy = self._streams[frame.stream].policy
        if policy.keep == "newest":
            stored = self._bounded.get(frame.stream)
            if stored is None:
                stored = _Bounded(min(self.limit, policy.hub_bytes or self.limit))
                self._bounded[frame.stream] = stored
            self._end_tail()
            self._recent[frame.seq] = frame
            stored.frames.append(frame)
            stored.bytes += frame.size
            while stored.bytes > stored.limit and len(stored.frames) > 1:
                self._forget_oldest(stored)
        elif self._recent:
            self._recent[frame.seq] = frame
            if self._tail and (
                self._tail[0].stream != frame.stream
                or len(self._tail) >= _MERGE_FRAMES
                or self._tail_bytes >= _MERGE_BYTES
            ):
                self._end_tail()
            self._tail.append(frame)
            self._tail_bytes += frame.size
        else:
            self._fold(frame)

    def backlog(self, since: int | None, max_bytes: int | None = None) -> Backlog:
        """Return what a viewer that has everything up to ``since`` lacks; None for a first connection.

        Of each stream that is not stored whole, at most ``max_bytes`` of the newest frames; all when absent.
        """
        start = since or 0
        pieces: list[tuple[LiveFrame | _Merged, int]] = []
        for piece in self._old[bisect_right(self._old, start, key=lambda p: p.seq) :]:
            pieces.append((piece, start))
        pending = [piece for piece in self._open if piece.seq > start]
        if pending:
            pieces.append((self._merge(pending), start))
        budgets = {stream: _Budget(stored.limit, max_bytes) for stream, stored in self._bounded.items()}
        recent: list[tuple[LiveFrame | _Merged, int]] = []
        missed = _Missed()
        for stored in self._bounded.values():
            stored.gone.after(start, missed)
        for seq in reversed(self._recent):
            if seq <= start:
                break
            frame = self._recent[seq]
            if (
                isinstance(frame, LiveFrame)
                and frame.stream in budgets
                and not budgets[frame.stream].takes(frame)
            ):
                missed.add(frame.rows, frame.first_step)
                missed.add(0, frame.step, 0)
                continue
            recent.append((frame, start))
        pieces.extend(reversed(recent))
        return Backlog(pieces, missed.frames, missed.rows, missed.first_step, missed.last_step)

    def _forget_oldest(self, stored: _Bounded) -> None:
        oldest = stored.frames.popleft()
        stored.bytes -= oldest.size
        del self._recent[oldest.seq]
        stored.gone.add(oldest)
        while self._recent:
            first = next(iter(self._recent))
            piece = self._recent[first]
            if piece.stream in self._bounded:
                break
            self._fold(self._recent.pop(first))

    def _end_tail(self) -> None:
        """Merge what came between two frames of bounded streams, so that rare ones separate few frames."""
        if len(self._tail) >= _WORTH_MERGING:
            merged = self._merge(self._tail)
            for frame in self._tail:
                del self._recent[frame.seq]
            self._recent[merged.seq] = merged
        self._tail, self._tail_bytes = [], 0

    def _fold(self, piece: LiveFrame | _Merged) -> None:
        if self._open and self._open[0].stream != piece.stream:
            self._seal()
        self._open.append(piece)
        self._open_rows += piece.rows
        self._open_bytes += piece.size if isinstance(piece, LiveFrame) else len(piece.data)
        if (
            len(self._open) >= _MERGE_FRAMES
            or self._open_rows >= _MERGE_ROWS
            or self._open_bytes >= _MERGE_BYTES
        ):
            self._seal()

    def _seal(self) -> None:
        self._old.append(self._merge(self._open))
        self._open, self._open_rows, self._open_bytes = [], 0, 0

    def _merge(self, pieces: Sequence[LiveFrame | _Merged]) -> _Merged:
        declared = self._streams[pieces[0].stream]
        headers = [decode_frame(piece.data, self._streams) for piece in pieces]
        table = pa.concat_tables([header.table() for header in headers]).combine_chunks()
        seqs = [piece.seqs if isinstance(piece, _Merged) else [piece.seq] for piece in pieces]
        ends = [piece.row_ends if isinstance(piece, _Merged) else [piece.rows] for piece in pieces]
        before = np.cumsum([0, *(piece.rows for piece in pieces)])
        merged = np.concatenate(seqs).astype(np.int64)
        data = encode_frame(
            declared,
            table,
            step=max(header.step for header in headers),
            seq=pieces[-1].seq,
            time_us=headers[-1].time_us,
            bits=BIT_CAUGHT_UP | (BIT_MERGED if len(merged) > 1 else 0),
        )
        row_ends = np.concatenate([np.asarray(end) + start for end, start in zip(ends, before, strict=False)])
        return _Merged(declared, merged, row_ends.astype(np.int64), data)


@dataclass(slots=True)
class _Bounded:
    """The stored frames of a bounded stream, oldest first, their bytes and bound, and those that went."""

    limit: int
    frames: deque[LiveFrame] = field(default_factory=deque)
    bytes: int = 0
    gone: _GoneLog = field(default_factory=lambda: _GoneLog())


class _Budget:
    """How much of a bounded stream one viewer is sent, newest frame first."""

    def __init__(self, limit: int, most: int | None) -> None:
        self._left = limit if most is None else most
        # The newest frame is sent even when it alone is larger than the buffer.
        self._alone = most is None
        self._full = False

    def takes(self, frame: LiveFrame) -> bool:
        self._full = self._full or (frame.size > self._left and not self._alone)
        self._alone = False
        self._left -= frame.size
        return not self._full


@dataclass(slots=True)
class _Missed:
    frames: int = 0
    rows: int = 0
    first_step: int | None = None
    last_step: int | None = None

    def add(self, rows: int, step: int, frames: int = 1) -> None:
        self.frames += frames
        self.rows += rows
        self.first_step = step if self.first_step is None else min(self.first_step, step)
        self.last_step = step if self.last_step is None else max(self.last_step, step)


class _GoneLog:
    """Which frames of a stream left the buffer: the newest one by one, older ones in blocks.

    So it stays small over days. A viewer that was away for more than 65,536 frames may be reported one block
    too many.
    """

    def __init__(self) -> None:
        self._seqs, self._rows, self._first, self._steps = (array("q") for _ in range(4))
        self._blocks: list[tuple[int, int, int, int, int]] = []

    def add(self, frame: LiveFrame) -> None:
        self._seqs.append(frame.seq)
        self._rows.append(frame.rows)
        self._first.append(frame.first_step)
        self._steps.append(frame.step)
        if len(self._seqs) >= 2 * _LOG_FRAMES:
            stored = (self._seqs, self._rows, self._first, self._steps)
            seqs, rows, first, steps = (values[:_LOG_FRAMES] for values in stored)
            self._blocks.append((seqs[-1], len(seqs), sum(rows), min(first), max(steps)))
            for values in stored:
                del values[:_LOG_FRAMES]

    def after(self, since: int, missed: _Missed) -> None:
        """Add what a viewer that has everything up to ``since`` misses."""
        for last, frames, rows, first_step, last_step in self._blocks:
            if last > since:
                missed.add(rows, first_step, frames)
                missed.add(0, last_step, 0)
        start = bisect_right(self._seqs, since)
        if start < len(self._seqs):
            missed.add(sum(self._rows[start:]), min(self._first[start:]), len(self._seqs) - start)
            missed.add(0, max(self._steps[start:]), 0)
