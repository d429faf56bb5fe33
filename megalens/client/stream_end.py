"""Where a recorded stream ends, found without reading its rows: by the heads of an Arrow file's messages, by the footer of a Parquet file."""

from __future__ import annotations

import os
import struct
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.flatbuffer import message_header, table_field, u32
from .message_map import MessageMap
from .recorded_parquet import opened_parquet

__all__ = ["ArrowsMap", "arrows_identity", "StreamEnd", "arrows_end", "parquet_end"]

_PREFIX = struct.Struct("<Ii")
_LONG = struct.Struct("<q")
_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _RECORD_BATCH = 1, 3
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class StreamEnd:
    """How far a stream goes.

    Attributes
    ----------
    cut : bool
        Whether the file ends within a message.
    last_step : int
        Newest step that is recorded; 0 where there is none.
    """

    cut: bool = False
    last_step: int = 0


def arrows_end(path: Path) -> StreamEnd | None:
    """Walk the messages of an Arrow stream file, whose first column is ``step``; None where the rows have to be read, since they are compressed.

    Of each message its head is read, and of a record batch its steps. The last one is read whole, since it is what a crash of the
    machine may have left half written at its full length.

    Raises
    ------
    OSError
        When the file cannot be read.
    """
    newest, before, start = 0, 0, -1
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        cut, at = False, 0
        while not cut and at < size:
            try:
                found = _message(file, at, size)
            except CompressedRows:
                return None
            except struct.error:
                cut = True
                break
            if found is None:
                break
            if at:
                start, before = at, newest
                newest = max(newest, found.last_step)
            cut = found.kind != (_RECORD_BATCH if at else _SCHEMA)
            at = found.end
        if start >= 0 and not cut and not _is_valid(path, start):
            cut, newest = True, before
    return StreamEnd(cut, newest)


def parquet_end(path: Path) -> StreamEnd:
    """Look into the footer of a Parquet file; one that was cut short has none.

    Raises
    ------
    pyarrow.ArrowException, OSError, ValueError, ClientError
        When the file cannot be read.
    """
    newest = 0
    with opened_parquet(path) as file:
        for number, group in enumerate(file.groups):
            high = file.chunk("step", number).high
            if high is not None:
                newest = max(newest, high)
            elif group.rows:
                steps = [pc.max(steps).as_py() for steps in file.column("step", number)]
                newest = max([newest, *(step for step in steps if step is not None)])
    return StreamEnd(last_step=newest)


class ArrowsMap:
    """Which steps the messages of an Arrow stream file hold, whose first column is ``step``. Of a file that grows only what was appended is looked at.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._identity = (0, 0)
        self._at = 0
        self._messages = MessageMap()
        self._is_readable = True

    def skips(self, first: int | None, last: int | None) -> dict[int, int]:
        """Return the messages that hold no step from ``first`` to ``last``: where each begins and ends. Others may hold none either.

        Raises
        ------
        OSError
            When the file cannot be read.
        """
        if first is None and last is None:
            return {}
        with self._lock:
            self._look()
            outside = self._messages.outside(first, last)
        return dict(outside[:, :2].tolist())

    def _look(self) -> None:
        with self._path.open("rb") as file:
            info = os.fstat(file.fileno())
            identity = arrows_identity(self._path)
            if identity != self._identity or info.st_size < self._at:
                # Another recording took its place, or the same one without its oldest rows.
                self._forget()
                self._identity = identity
            while self._is_readable and self._at < info.st_size:
                try:
                    found = _message(file, self._at, info.st_size)
                except struct.error:
                    # The last message is not whole yet.
                    return
                except CompressedRows:
                    self._is_readable = False
                    return
                if found is None:
                    return
                if found.kind == _RECORD_BATCH:
                    self._messages.add(self._at, found.end, found.first_step, found.last_step)
                self._at = found.end


def arrows_identity(path: Path) -> tuple[int, int]:
    """Return what tells a stream file that grows from another one in its place: a file system soon gives the number of a file to a new one, so that the beginning counts too.

    Raises
    ------
    OSError
        When the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        return os.fstat(file.fileno()).st_ino, zlib.crc32(head) if len(head) == _HEAD_BYTES else 0


class CompressedRows(Exception):
    """Steps cannot be seen without unpacking."""


@dataclass(frozen=True)
class _Message:
    kind: int
    end: int
    first_step: int
    last_step: int


def _message(file: BinaryIO, at: int, size: int) -> _Message | None:
    """Return what the head of the message at a place says; None for the mark of the end. Raises ``struct.error`` where it is not whole."""
    marker, length = _PREFIX.unpack(_read(file, at, 8))
    if marker == 0 or (marker == _CONTINUATION and length == 0):
        return None
    if marker != _CONTINUATION or length < 0 or at + 8 + length > size:
        raise struct.error
    head = memoryview(_read(file, at + 8, length))
    kind, header, body = message_header(head)
    end = at + 8 + length + body
    if body < 0 or end > size:
        raise struct.error
    steps = _steps(file, head, header, at + 8 + length, end) if kind == _RECORD_BATCH else (0, 0)
    return _Message(kind, end, *steps)


def _steps(file: BinaryIO, head: memoryview, batch: int, body: int, end: int) -> tuple[int, int]:
    """Return the first and the last step of a record batch; 0 and 0 of one without rows."""
    if table_field(head, batch, 3):
        raise CompressedRows
    rows_at, buffers = table_field(head, batch, 0), table_field(head, batch, 2)
    rows = _LONG.unpack_from(head, rows_at)[0] if rows_at else 0
    if rows <= 0:
        return 0, 0
    # Validity and numbers of the first column, each as its place in the body and its length; `u32` leads to the vector, after its own length.
    place = buffers + u32(head, buffers) + 4 + 16
    offset, length = _LONG.unpack_from(head, place)[0], _LONG.unpack_from(head, place + 8)[0]
    if offset < 0 or length < 8 * rows or body + offset + 8 * rows > end:
        raise struct.error
    steps = np.frombuffer(_read(file, body + offset, 8 * rows), np.int64)
    return int(steps.min()), int(steps.max())


def _is_valid(path: Path, start: int) -> bool:
    """Return whether Arrow takes the record batch at a place, with all that is in it."""
    with pa.OSFile(str(path), "rb") as file:
        try:
            schema = pa.ipc.open_stream(file).schema
            file.seek(start)
            pa.ipc.read_record_batch(pa.ipc.read_message(file), schema).validate(full=True)
        except (pa.ArrowException, ValueError):
            return False
    return True


def _read(file: BinaryIO, at: int, length: int) -> bytes:
    file.seek(at)
    return file.read(length)
