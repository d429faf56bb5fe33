"""The files of one recording."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..protocol import CheckedBody, replace_file
from .packing import pack_stream, sync_folder
from .stream_file import StreamFile

__all__ = ["GivenUp", "RecordingFolder"]


_PIECES = 256
"""A bounded recording gives up its oldest rows in pieces of about so many of its bytes."""


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


class RecordingFolder:
    """The run folder that a recorder writes.

    Parameters
    ----------
    path : Path
        The folder, made here unless a recording goes on in it.
    limit_bytes : int or None
        What :meth:`keep_newest` keeps to.
    resumes : bool
        Whether a recording goes on.

    Raises
    ------
    OSError
        When it cannot be made or written.
    """

    def __init__(self, path: Path, limit_bytes: int | None = None, *, resumes: bool = False) -> None:
        self.path = path
        self.streams: dict[str, StreamFile] = {}
        self._limit = limit_bytes
        path.mkdir(parents=True, exist_ok=resumes)

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
