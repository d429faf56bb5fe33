"""The folder of one recorded stream: sealed segments, tails that wait for it, and the one that grows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from ..protocol import SEALED, TAIL, CheckedBody, Stream, segment_name, stream_segments
from ..protocol.messages_generated import StreamSummary
from .stream_file import StreamFile

__all__ = ["StreamFolder"]

_AGE_PART = 20
_LEAST_SECONDS, _MOST_SECONDS = 60.0, 3600.0
_MOST_TAILS = 4
"""A tail whose step does not end has so many times its bytes at most: a sealer holds it in memory."""


class StreamFolder:
    """Writes the rows of one stream, and rotates to a new tail when the old one is large or old enough.

    A tail of ``tail_bytes`` is rotated at the next new step. ``began`` is the recording's start by
    ``time.monotonic``. ``rotated`` takes each tail that is complete.
    """

    def __init__(
        self, run: Path, stream: Stream, tail_bytes: int, began: float, rotated: Callable[[StreamFile], None]
    ) -> None:
        self.stream = stream
        self.files: list[StreamFile] = []
        """What there is, in the order in which it was recorded."""
        self._run = run
        self._tail_bytes = tail_bytes
        self._began = began
        self._rotated = rotated
        self._tail: StreamFile | None = None
        self._rotate_at = 0.0
        self._number = max((each.number + 1 for each in stream_segments(run, stream.name)), default=0)

    def append(self, body: CheckedBody) -> None:
        """Add rows: all of them, or none where ``OSError`` is raised."""
        if self._tail is None or self._due(self._tail, body):
            self._rotate(body)
        assert self._tail is not None
        self._tail.append(body)

    def _due(self, tail: StreamFile, body: CheckedBody) -> bool:
        if tail.bytes < self._tail_bytes and time.monotonic() < self._rotate_at:
            return False
        newest = max(body.numbers("step").tolist(), default=-1)
        # Whole steps in a file are fewer places to look for one.
        return newest > (tail.last_step or 0) or tail.bytes >= _MOST_TAILS * self._tail_bytes

    def _rotate(self, body: CheckedBody) -> None:
        steps = body.numbers("step").tolist()
        folder = self._run / self.stream.name
        folder.mkdir(exist_ok=True)
        # Where it cannot be made, the old one goes on.
        tail = StreamFile(folder / segment_name(self._number, steps[0] if steps else 0, TAIL), self.stream)
        if self._tail is not None:
            self._tail.close()
            self._rotated(self._tail)
        self._tail = tail
        self.files.append(tail)
        self._number += 1
        now = time.monotonic()
        # A long run has few segments, and the newest rows of a short one are soon where every program reads them.
        age = (now - self._began) / _AGE_PART
        self._rotate_at = now + min(max(age, _LEAST_SECONDS), _MOST_SECONDS)

    def gone(self) -> list[StreamFile]:
        """Forget and return the files that somebody removed."""
        gone = [
            file for file in self.files if not (file.there() if file is self._tail else _has_rows(file.path))
        ]
        for file in gone:
            self.forget(file)
        return gone

    def forget(self, file: StreamFile) -> None:
        """Close and forget a file."""
        file.close()
        self.files.remove(file)
        if file is self._tail:
            self._tail = None

    def remove(self, file: StreamFile) -> None:
        """Delete a closed file and forget it."""
        # It may have been sealed a moment ago.
        for path in {file.path, file.path.with_suffix(SEALED)}:
            path.unlink(missing_ok=True)
        self.forget(file)

    def closed_files(self) -> list[StreamFile]:
        """Return the files to which nothing is added any more."""
        return [file for file in self.files if file is not self._tail]

    def summary(self) -> StreamSummary:
        """Return the stream's entry in ``run.json``."""
        steps = [
            step for file in self.files for step in (file.first_step, file.last_step) if step is not None
        ]
        return {
            "rows": sum(file.rows for file in self.files),
            "bytes": sum(file.bytes for file in self.files),
            "first_step": min(steps, default=None),
            "last_step": max(steps, default=None),
        }

    def close(self) -> None:
        """Close the growing tail, which is handed on like those before. Safe twice."""
        if self._tail is not None:
            self._tail.close()
            self._rotated(self._tail)
            self._tail = None


def _has_rows(path: Path) -> bool:
    # In this order, since a sealer that is at work removes the tail last.
    return os.path.lexists(path) or os.path.lexists(path.with_suffix(SEALED))
