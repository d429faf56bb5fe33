"""The files of one recording."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ..protocol import CheckedBody, Stream
from .packing import pack_stream, sync_folder

__all__ = ["RecordingFolder", "StreamFile"]


class StreamFile:
    """One growing ``.arrows`` file: an Arrow stream to which whole messages are added.

    Parameters
    ----------
    path : Path
        The file, which must not exist.
    stream : Stream
        Its stream.

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
            self._write([memoryview(stream.schema_message)])
        except OSError:
            self.close()
            # The next try makes it anew.
            path.unlink(missing_ok=True)
            raise

    def append(self, body: CheckedBody) -> None:
        """Add the rows as whole messages with one write each: all of them, or none where an error is raised."""
        self._write(body.messages())
        self.rows += body.rows
        steps = [step for step in body.numbers("step").tolist() if step >= 0]
        if steps:
            low, high = min(steps), max(steps)
            self.first_step = low if self.first_step is None else min(self.first_step, low)
            self.last_step = high if self.last_step is None else max(self.last_step, high)

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

    def _write(self, views: list[memoryview]) -> None:
        if self._torn:
            os.ftruncate(self._descriptor, self.bytes)
            self._torn = False
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

    Raises
    ------
    OSError
        When it cannot be made or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.streams: dict[str, StreamFile] = {}
        path.mkdir(parents=True)

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
            file = self.streams[stream.name] = StreamFile(self.path / f"{stream.name}.arrows", stream)
        file.append(body)

    @property
    def bytes(self) -> int:
        """Bytes written so far."""
        return sum(file.bytes for file in self.streams.values())

    def write_description(self, description: dict[str, Any]) -> None:
        """Replace ``run.json`` atomically, adding what the streams hold."""
        streams = {name: file.summary() for name, file in self.streams.items()}
        text = json.dumps({**description, "streams": streams}, ensure_ascii=False, allow_nan=False, indent=1)
        partial = self.path / "run.json.partial"
        try:
            with open(partial, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self.path / "run.json")
        except OSError:
            partial.unlink(missing_ok=True)
            raise

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
