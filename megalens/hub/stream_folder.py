"""One recorded stream: its folder of sealed segments, tails that wait for it, and the tail that grows."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from ..protocol import (
    SEALED,
    TAIL,
    CheckedBody,
    Stream,
    make_subfolder,
    new_file_mode,
    segment_name,
    stream_segments,
    take_mode,
)
from ..protocol.messages_generated import StreamSummary
from .segment_file import remove_segment

_MOST_RANGES = 1000
_AGE_PART = 20
_LEAST_SECONDS, _MOST_SECONDS = 60.0, 3600.0
_MOST_TAILS = 4
"""A tail whose step does not end has so many times its bytes at most: a sealer holds it in memory."""


class StepRanges:
    """A set of steps as inclusive ranges. Past 1,000 the closest two become one: never too few steps."""

    def __init__(self) -> None:
        self._ranges: list[list[int]] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, first: int, last: int | None = None) -> None:
        """Add one step, or all from ``first`` to ``last``."""
        self._ranges.append([first, first if last is None else last])
        self._ranges.sort()
        merged: list[list[int]] = []
        for low, high in self._ranges:
            if merged and low <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], high)
            else:
                merged.append([low, high])
        if len(merged) > _MOST_RANGES:
            gap = min(range(1, len(merged)), key=lambda i: merged[i][0] - merged[i - 1][1])
            merged[gap - 1][1] = merged[gap][1]
            del merged[gap]
        self._ranges = merged

    def to_list(self) -> list[list[int]]:
        """Return the ranges in order, such as ``[[3, 5], [9, 9]]``."""
        return [list(pair) for pair in self._ranges]


class StreamFile:
    """One file of a stream: a tail to which whole messages of Arrow are added, and later its sealed segment.

    Attributes
    ----------
    path : Path
        The tail, which must not exist at first; then the segment.
    first_step, last_step : int or None
        The lowest and the highest step.
    identity : (int, int)
        Device and number of the tail.
    bare : bool
        Whether it has no large values any more.

    Raises
    ------
    OSError
        When the disk is full or fails; the file then ends with its last whole message.
    """

    def __init__(self, path: Path, stream: Stream) -> None:
        self.path = path
        self.stream = stream
        self.rows = 0
        self.bytes = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        mode = new_file_mode(path.parent)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, mode)
        self._torn = self.bare = False
        try:
            take_mode(self._descriptor, mode)
            found = os.fstat(self._descriptor)
            self.identity = found.st_dev, found.st_ino
            self._write([memoryview(stream.schema_message)])
        except OSError:
            self.close()
            # The next try makes it anew.
            path.unlink(missing_ok=True)
            raise

    def append(self, body: CheckedBody) -> None:
        """Add rows as whole messages with one write each: all of them, or none where an error is raised."""
        self._write(body.messages())
        self.rows += body.rows
        steps = [step for step in body.numbers("step").tolist() if step >= 0]
        if steps:
            low, high = min(steps), max(steps)
            self.first_step = low if self.first_step is None else min(self.first_step, low)
            self.last_step = high if self.last_step is None else max(self.last_step, high)

    def become(self, segment: Path, size: int) -> None:
        """Note that the tail, which is closed, was sealed to a file of so many bytes."""
        self.path, self.bytes = segment, size

    def close(self) -> None:
        """Close the file. Safe twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def there(self) -> bool:
        """Whether the open tail is still in place: a removed file can be written to without an error."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return self.identity == (found.st_dev, found.st_ino)

    def _mend(self) -> None:
        if self._torn:
            os.ftruncate(self._descriptor, self.bytes)
            self._torn = False

    def _write(self, views: list[memoryview]) -> None:
        self._mend()
        size = self.bytes
        try:
            for view in views:
                done = 0
                while done < len(view):
                    done += os.write(self._descriptor, view[done:])
                size += done
        except OSError:
            # Half a message at the end would hide everything that came after it.
            self._torn = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.bytes)
                self._torn = False
            raise
        self.bytes = size


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
        make_subfolder(folder)
        # Where it cannot be made, the old one goes on.
        tail = StreamFile(folder / segment_name(self._number, steps[0] if steps else 0, TAIL), self.stream)
        if self._tail is not None:
            self._tail.close()
            self._rotated(self._tail)
        self._tail = tail
        self.files.append(tail)
        self._number += 1
        now = time.monotonic()
        # A long run has few segments, and the newest rows of a short one are soon sealed for every reader.
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
        file.path.unlink(missing_ok=True)
        remove_segment(file.path.with_suffix(SEALED))
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
