"""One file of a recorded stream, from its first row to where it is sealed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..protocol import CheckedBody, Stream

__all__ = ["StreamFile", "StepRanges"]

_MOST_RANGES = 1000


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
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._torn = False
        try:
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
