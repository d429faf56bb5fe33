"""What a viewer that comes late, or comes back, is sent: all scalars and audit rows, and the newest tensors."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..protocol import BIT_CAUGHT_UP, BIT_MERGED, decode_frame, encode_frame, restamp_frame
from .live_frame import LiveFrame

__all__ = ["Backlog", "History"]

_MERGE_FRAMES = 512
_MERGE_ROWS = 16384
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

    seqs: np.ndarray[tuple[int], np.dtype[np.int64]]
    row_ends: np.ndarray[tuple[int], np.dtype[np.int64]]
    data: bytes

    @property
    def seq(self) -> int:
        return int(self.seqs[-1])

    def after(self, since: int) -> bytes:
        count = int(np.searchsorted(self.seqs, since, side="right"))
        if count == 0:
            return self.data
        frame = decode_frame(self.data)
        return encode_frame(
            frame.stream,
            frame.table().slice(int(self.row_ends[count - 1])),
            step=frame.step,
            seq=frame.seq,
            time_us=frame.time_us,
            bits=frame.bits,
        )


class History:
    """The hub's catch-up buffer.

    A frame is merged with its neighbours of the same stream only when no other kept frame lies between them. So whatever a viewer has been sent so
    far is everything up to one sequence number, and a connection that breaks during catch-up loses and repeats nothing.

    Parameters
    ----------
    limit : int
        Bytes of ``tensors`` frames to keep.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tensor_bytes = 0
        self._old: list[LiveFrame | _Merged] = []
        self._open: list[LiveFrame] = []
        self._open_rows = 0
        # Begins with a tensors frame whenever it is not empty.
        self._recent: deque[LiveFrame] = deque()
        self._gone = _GoneLog()

    def append(self, frame: LiveFrame) -> None:
        """Keep one frame. Sequence numbers must rise."""
        if frame.stream == "tensors":
            self.tensor_bytes += frame.size
            self._recent.append(frame)
            while self.tensor_bytes > self.limit and self.tensor_bytes > frame.size:
                self._forget_oldest()
        elif self._recent:
            self._recent.append(frame)
        else:
            self._fold(frame)

    def backlog(self, since: int | None, max_bytes: int | None = None) -> Backlog:
        """Return what a viewer that has everything up to ``since`` lacks.

        Parameters
        ----------
        since : int or None
            Last sequence number that the viewer has; None for a first connection.
        max_bytes : int, optional
            At most this many bytes of ``tensors`` frames, the newest; all that are kept when absent.
        """
        start = since or 0
        pieces: list[tuple[LiveFrame | _Merged, int]] = []
        for piece in self._old[bisect_right(self._old, start, key=lambda p: p.seq) :]:
            pieces.append((piece, start))
        pending = [frame for frame in self._open if frame.seq > start]
        if pending:
            pieces.append((_merge(pending), 0))
        left = self.limit if max_bytes is None else max_bytes
        recent: list[tuple[LiveFrame | _Merged, int]] = []
        missed = self._gone.after(start)
        full = False
        for frame in reversed(self._recent):
            if frame.seq <= start:
                break
            if frame.stream == "tensors":
                # The newest frame is sent even when it alone is larger than the buffer.
                alone = max_bytes is None and left == self.limit
                full = full or (frame.size > left and not alone)
                if full:
                    missed.add(frame.rows, frame.step)
                    continue
                left -= frame.size
            recent.append((frame, 0))
        pieces.extend(reversed(recent))
        return Backlog(pieces, missed.frames, missed.rows, missed.first_step, missed.last_step)

    def _forget_oldest(self) -> None:
        oldest = self._recent.popleft()
        self.tensor_bytes -= oldest.size
        self._gone.add(oldest)
        while self._recent and self._recent[0].stream != "tensors":
            self._fold(self._recent.popleft())

    def _fold(self, frame: LiveFrame) -> None:
        if self._open and self._open[0].stream != frame.stream:
            self._seal()
        self._open.append(frame)
        self._open_rows += frame.rows
        if len(self._open) >= _MERGE_FRAMES or self._open_rows >= _MERGE_ROWS:
            self._seal()

    def _seal(self) -> None:
        self._old.append(_merge(self._open))
        self._open, self._open_rows = [], 0


def _merge(frames: list[LiveFrame]) -> _Merged:
    headers = [decode_frame(frame.data) for frame in frames]
    table = pa.concat_tables([header.table() for header in headers]).combine_chunks()
    bits = BIT_CAUGHT_UP | (BIT_MERGED if len(frames) > 1 else 0)
    data = encode_frame(
        frames[0].stream,
        table,
        step=max(frame.step for frame in frames),
        seq=frames[-1].seq,
        time_us=headers[-1].time_us,
        bits=bits,
    )
    seqs = np.array([frame.seq for frame in frames], dtype=np.int64)
    return _Merged(seqs, np.cumsum([frame.rows for frame in frames], dtype=np.int64), data)


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
    """Which frames left the buffer: the newest one by one, older ones in blocks, so that it stays small over days.

    A viewer that was away for more than 65,536 frames may be told of one block too many.
    """

    def __init__(self) -> None:
        self._seqs, self._rows, self._steps = array("q"), array("q"), array("q")
        self._blocks: list[tuple[int, int, int, int, int]] = []

    def add(self, frame: LiveFrame) -> None:
        self._seqs.append(frame.seq)
        self._rows.append(frame.rows)
        self._steps.append(frame.step)
        if len(self._seqs) >= 2 * _LOG_FRAMES:
            seqs, rows, steps = (values[:_LOG_FRAMES] for values in (self._seqs, self._rows, self._steps))
            self._blocks.append((seqs[-1], len(seqs), sum(rows), min(steps), max(steps)))
            for values in (self._seqs, self._rows, self._steps):
                del values[:_LOG_FRAMES]

    def after(self, since: int) -> _Missed:
        missed = _Missed()
        for last, frames, rows, first_step, last_step in self._blocks:
            if last > since:
                missed.add(rows, first_step, frames)
                missed.add(0, last_step, 0)
        start = bisect_right(self._seqs, since)
        if start < len(self._seqs):
            missed.add(sum(self._rows[start:]), min(self._steps[start:]), len(self._seqs) - start)
            missed.add(0, max(self._steps[start:]), 0)
        return missed
