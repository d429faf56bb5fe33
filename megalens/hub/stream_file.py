"""One stream's file of a recording while it grows."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from ..protocol import FIRST_BYTES, CheckedBody, IndexWriter, Stream, index_path
from ..protocol.messages_generated import StreamSummary

__all__ = ["StreamFile", "StreamPiece", "StepRanges"]

_MOST_RANGES = 1000


class StepRanges:
    """A set of steps kept as inclusive ranges. Past 1,000 ranges the closest two become one, so it never says
    too little.
    """

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


@dataclass
class StreamPiece:
    """Neighbouring messages of a file, which are given up together."""

    bytes: int
    rows: int
    first_step: int
    last_step: int


class StreamFile:
    """One growing ``.arrows`` file: an Arrow stream to which whole messages are added.

    Parameters
    ----------
    path : Path
        The file, which must not exist.
    stream : Stream
        Its stream.
    piece_bytes : int or None
        Size of the pieces in which its oldest rows can be given up; None where they never are.

    Raises
    ------
    OSError
        When the disk is full or fails; the file then ends with its last whole message.
    """

    def __init__(self, path: Path, stream: Stream, piece_bytes: int | None = None) -> None:
        self.path = path
        self.stream = stream
        self.rows = 0
        self.bytes = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.pieces: list[StreamPiece] = []
        self._piece_bytes = piece_bytes
        # Of a file that loses its oldest messages an index would have to be written anew.
        self._may_index = piece_bytes is None
        self._indexed: IndexWriter | None = None
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._torn = False
        try:
            self._write([memoryview(stream.schema_message)])
        except OSError:
            self.close()
            # The next try makes it anew.
            path.unlink(missing_ok=True)
            raise

    def append(self, body: CheckedBody) -> None:
        """Add the rows as whole messages with one write each: all of them, or none where an error is
        raised.
        """
        before, messages = self.bytes, body.messages()
        self._write(messages)
        self._index(body, before, messages)
        self.rows += body.rows
        steps = [step for step in body.numbers("step").tolist() if step >= 0]
        if steps:
            low, high = min(steps), max(steps)
            self.first_step = low if self.first_step is None else min(self.first_step, low)
            self.last_step = high if self.last_step is None else max(self.last_step, high)
        if self._piece_bytes is not None:
            self._note(
                StreamPiece(self.bytes - before, body.rows, min(steps, default=-1), max(steps, default=-1))
            )

    def _index(self, body: CheckedBody, begin: int, messages: list[memoryview]) -> None:
        """Say in the index what was written; without it whoever reads takes longer, and nothing else."""
        if not self._may_index:
            return
        try:
            if self._indexed is None:
                first = bytes(messages[0][:FIRST_BYTES])
                self._indexed = IndexWriter(index_path(self.path), self.stream.schema, begin, first)
            self._indexed.add(begin, body, messages)
        except (OSError, ValueError):
            self._drop_index()

    def _drop_index(self) -> None:
        self._may_index = False
        if self._indexed is not None:
            self._indexed.close()
            self._indexed = None
            with contextlib.suppress(OSError):
                index_path(self.path).unlink()

    def _note(self, piece: StreamPiece) -> None:
        newest = self.pieces[-1] if self.pieces else None
        if newest is None or newest.bytes + piece.bytes > (self._piece_bytes or 0):
            self.pieces.append(piece)
            return
        newest.bytes += piece.bytes
        newest.rows += piece.rows
        newest.first_step = min(newest.first_step, piece.first_step)
        newest.last_step = max(newest.last_step, piece.last_step)

    def give_up(self, step: int) -> list[StreamPiece]:
        """Give up the oldest pieces up to a step, all but the newest one, and return them.

        What is left takes the file's place in one go: whoever reads the old file reads on in it.

        Raises
        ------
        OSError
            When the disk is full or fails; the file is then as it was.
        """
        gone = list(takewhile(lambda piece: piece.last_step <= step, self.pieces[:-1]))
        if not gone:
            return []
        self._mend()
        partial = self.path.with_suffix(".arrows.partial")
        head = self.stream.schema_message
        cut = sum(piece.bytes for piece in gone)
        try:
            with open(self.path, "rb") as old, open(partial, "wb") as new:
                new.write(head)
                old.seek(len(head) + cut)
                shutil.copyfileobj(old, new, 1 << 20)
            # Opened before it takes the place: what could not be opened would be lost.
            descriptor = os.open(partial, os.O_WRONLY | os.O_APPEND)
            try:
                os.replace(partial, self.path)
            except OSError:
                os.close(descriptor)
                raise
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        self.close()
        self._descriptor = descriptor
        self.bytes -= cut
        self.rows -= sum(piece.rows for piece in gone)
        self.pieces = self.pieces[len(gone) :]
        self.first_step = min(piece.first_step for piece in self.pieces)
        return gone

    def summary(self) -> StreamSummary:
        """Return the stream's entry in ``run.json``."""
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "first_step": self.first_step,
            "last_step": self.last_step,
        }

    def close(self) -> None:
        """Close the file. Safe twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._indexed is not None:
            self._indexed.close()

    def sync(self) -> None:
        """Make what is written safe on disk."""
        os.fsync(self._descriptor)

    def there(self) -> bool:
        """Whether the file still is where it was made: a file that somebody removed can be written to without
        an error.
        """
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

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
