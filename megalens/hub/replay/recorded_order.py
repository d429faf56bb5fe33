"""The order and the times of a recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ...runs import RunFolder
from ...runs.query import Query

__all__ = ["Chunk", "RecordedOrder"]

_STEP_SECONDS = 0.1
_LONGEST_GAP = 60.0
_CHUNK_BYTES = 24 << 20


@dataclass(frozen=True)
class Chunk:
    """Rows of one stream that follow each other and belong to one step.

    Attributes
    ----------
    stream : str
        Stream name.
    rows : pyarrow.Table
        The rows.
    step : int
        Newest step up to here, which orders streams among each other.
    """

    stream: str
    rows: pa.Table
    step: int


class RecordedOrder:
    """What a recording holds, in order.

    Parameters
    ----------
    folder : RunFolder
        The recording.
    first : int or None
        Step to begin at.
    """

    def __init__(self, folder: RunFolder, first: int | None = None) -> None:
        self._folder = folder
        self._first = first
        self._steps, self._times = self._read_times()

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows: those of one stream as they were recorded, streams among each other by step."""
        heads = [iter(self._stream(stream)) for stream in self._folder.streams]
        waiting = [(head, chunk) for head in heads if (chunk := next(head, None)) is not None]
        while waiting:
            at = min(range(len(waiting)), key=lambda n: self._place(waiting[n][1]))
            head, chunk = waiting[at]
            yield chunk
            following = next(head, None)
            if following is None:
                del waiting[at]
            else:
                waiting[at] = (head, following)

    def seconds(self, step: int) -> float:
        """Return when a step was reached, in seconds of the recording; a tenth of a second a step where nothing tells."""
        if len(self._steps) < 2:
            return step * _STEP_SECONDS
        return float(np.interp(step, self._steps, self._times))

    def _place(self, chunk: Chunk) -> tuple[int, int]:
        return chunk.step, self._folder.streams[chunk.stream].policy.replay_order

    def _stream(self, stream: str) -> Iterator[Chunk]:
        newest = -1
        for batch in self._folder.batches(stream, Query(first=self._first)):
            steps = batch.column("step").to_numpy()
            cuts = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
            for low, high in pairwise(cuts):
                newest = max(newest, int(steps[low]))
                for piece in _pieces(batch.slice(low, high - low)):
                    yield Chunk(stream, piece, newest)

    def _read_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Read the steps and times of ``scalars``, both rising, long pauses shortened."""
        table = self._folder.read("scalars", Query(first=self._first), columns=["step", "time"])
        steps, times = (table.column(name).to_numpy() for name in ("step", "time"))
        known = np.isfinite(times)
        steps, at = np.unique(steps[known], return_index=True)
        # A clock that was set back stands still; one that was set forward is a pause.
        gaps = np.clip(np.diff(times[known][at]), 0, _LONGEST_GAP)
        return steps, np.concatenate(([0.0], np.cumsum(gaps)))[: len(steps)]


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    """Cut rows so that each piece fits into one frame."""
    if batch.num_rows > 1 and batch.nbytes > _CHUNK_BYTES:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
        return
    yield pa.Table.from_batches([batch])
