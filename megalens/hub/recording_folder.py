"""The files of one recording."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..protocol import CheckedBody, Stream, replace_file
from .packing import pack_stream, sync_folder

__all__ = ["GivenUp", "RecordingFolder", "StreamFile"]


_PIECES = 256
"""A bounded recording gives up its oldest rows in pieces of about so many of its bytes."""


@dataclass
class _Piece:
    """Neighbouring messages of a file."""

    bytes: int
    rows: int
    first_step: int
    last_step: int


@dataclass(frozen=True)
class GivenUp:
    """What a recording lacks because it may not take more bytes.

    Attributes
    ----------
    rows : int
        How many rows.
    first_step, last_step : int
        Of which steps.
    """

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
        self.pieces: list[_Piece] = []
        self._piece_bytes = piece_bytes
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
        """Add the rows as whole messages with one write each: all of them, or none where an error is raised."""
        before = self.bytes
        self._write(body.messages())
        self.rows += body.rows
        steps = [step for step in body.numbers("step").tolist() if step >= 0]
        if steps:
            low, high = min(steps), max(steps)
            self.first_step = low if self.first_step is None else min(self.first_step, low)
            self.last_step = high if self.last_step is None else max(self.last_step, high)
        if self._piece_bytes is not None:
            self._note(_Piece(self.bytes - before, body.rows, min(steps, default=-1), max(steps, default=-1)))

    def _note(self, piece: _Piece) -> None:
        newest = self.pieces[-1] if self.pieces else None
        if newest is None or newest.bytes + piece.bytes > (self._piece_bytes or 0):
            self.pieces.append(piece)
            return
        newest.bytes += piece.bytes
        newest.rows += piece.rows
        newest.first_step = min(newest.first_step, piece.first_step)
        newest.last_step = max(newest.last_step, piece.last_step)

    def give_up(self, step: int) -> list[_Piece]:
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

    def summary(self) -> dict[str, Any]:
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

    def sync(self) -> None:
        """Make what is written safe on disk."""
        os.fsync(self._descriptor)

    def there(self) -> bool:
        """Whether the file still is where it was made: a file that somebody removed can be written to without an error."""
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


class RecordingFolder:
    """The run folder that a recorder writes.

    Parameters
    ----------
    path : Path
        The folder, made here.
    limit_bytes : int or None
        What :meth:`keep_newest` keeps to.

    Raises
    ------
    OSError
        When it cannot be made or written.
    """

    def __init__(self, path: Path, limit_bytes: int | None = None) -> None:
        self.path = path
        self.streams: dict[str, StreamFile] = {}
        self._limit = limit_bytes
        path.mkdir(parents=True)

    def deleted(self) -> bool:
        """Whether the recording was deleted: its ``run.json`` goes last."""
        return not os.path.lexists(self.path / "run.json")

    def mend(self) -> list[StreamFile]:
        """Make the folder again where somebody removed it, and return the files that are gone with what they held.

        Raises
        ------
        OSError
            When it cannot be made.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        gone = [file for file in self.streams.values() if not file.there()]
        for file in gone:
            file.close()
            del self.streams[file.stream.name]
        return gone

    def append(self, body: CheckedBody) -> None:
        """Add rows to their stream's file, made when its first rows come."""
        stream = body.declared
        file = self.streams.get(stream.name)
        if file is None:
            pieces = self._limit is not None and stream.policy.keep == "newest"
            file = StreamFile(
                self.path / f"{stream.name}.arrows", stream, (self._limit or 0) // _PIECES if pieces else None
            )
            self.streams[stream.name] = file
        file.append(body)

    def keep_newest(self) -> GivenUp | None:
        """Give up the oldest steps of the streams of which only the newest rows are kept, where the recording takes more than it may; None where nothing was.

        A quarter of the limit is made free at once, since what stays is copied. Streams that are kept whole (scalars, audit) stay.

        Raises
        ------
        OSError
            When the disk is full or fails.
        """
        if self._limit is None or self.bytes <= self._limit:
            return None
        excess = self.bytes - self._limit * 3 // 4
        oldest = sorted(
            (piece.last_step, piece.bytes) for file in self.streams.values() for piece in file.pieces[:-1]
        )
        last = None
        for step, size in oldest:
            if excess <= 0:
                break
            last, excess = step, excess - size
        if last is None:
            return None
        gone = [piece for file in self.streams.values() for piece in file.give_up(last)]
        if not gone:
            return None
        first = min(piece.first_step for piece in gone)
        return GivenUp(
            sum(piece.rows for piece in gone), max(0, first), max(piece.last_step for piece in gone)
        )

    @property
    def bytes(self) -> int:
        """Bytes written so far."""
        return sum(file.bytes for file in self.streams.values())

    def write_description(self, description: dict[str, Any]) -> None:
        """Replace ``run.json`` atomically, adding what the streams hold."""
        streams = {name: file.summary() for name, file in self.streams.items()}
        text = json.dumps({**description, "streams": streams}, ensure_ascii=False, allow_nan=False, indent=1)
        replace_file(self.path / "run.json", f"{text}\n".encode(), sync=True)

    def pack(self) -> None:
        """Close every stream and turn it into Parquet."""
        for file in self.streams.values():
            file.sync()
            file.close()
            pack_stream(file.path, file.stream)
        sync_folder(self.path)

    def close(self) -> None:
        """Close the files as they are. Safe twice."""
        for file in self.streams.values():
            file.close()
