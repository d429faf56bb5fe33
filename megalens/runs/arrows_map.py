"""Where the messages of an Arrow stream file lie and which steps they hold, found in their heads without reading their rows."""

from __future__ import annotations

import os
import struct
import threading
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..protocol import FIRST_BYTES, index_path, kind_rows, open_plain, read_index
from ..protocol.arrow_columns import CONTINUATION, MESSAGE_PREFIX, message_header, table_field, u32
from .gathering import check_unfolded
from .message_map import LikeHeads, MessageMap
from .query import Query
from .recorded_parquet import opened_parquet

__all__ = [
    "ArrowsMap",
    "CompressedRows",
    "arrows_identity",
    "check_message_size",
    "StreamEnd",
    "arrows_end",
    "parquet_end",
]

_LONG = struct.Struct("<q")
_SCHEMA, _RECORD_BATCH = 1, 3
_HEAD_BYTES = 1 << 16
# Of larger messages only the heads and the steps are read; smaller ones come many at a time.
_SMALL_BYTES = 1 << 18
# So much is read at once, and less of it where heads are often unlike.
_PIECE_BYTES = 4 << 20
_FIRST_PIECE_BYTES = 4 * _SMALL_BYTES
# Messages that an index is compared with.
_LOOKED_AT = 16
_RECORD_BATCH_ARROW_SIZES = 3
_AS_IT_IS = -1


# Where a recorded stream ends, found without reading its rows: by the heads of an Arrow file's messages, by
# the footer of a Parquet file.
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


def arrows_end(path: Path, messages: ArrowsMap | None = None) -> StreamEnd | None:
    """Find the end of an Arrow stream file, whose first column is ``step``; None where the rows have to be read, since they are compressed.

    Of each message its head is read, and of a record batch its steps. The last one is read whole, since it is what a crash of the
    machine may have left half written at its full length.

    Parameters
    ----------
    path : Path
        The file.
    messages : ArrowsMap, optional
        What is known of it.

    Raises
    ------
    OSError
        When the file cannot be read.
    """
    try:
        cut, found = (messages or ArrowsMap(path)).end()
    except CompressedRows:
        return None
    if len(found) and not cut and not _is_valid(path, int(found[-1, 0])):
        cut, found = True, found[:-1]
    return StreamEnd(cut, max(0, int(found[:, 3].max(initial=0))))


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


def check_message_size(file: BinaryIO, name: str, at: int, size: int) -> None:
    """Refuse a message whose compressed buffers say that they unfold to too much: Arrow takes that memory before it looks at them.

    Parameters
    ----------
    file : file
        The stream file.
    name : str
        Its name, for the error.
    at : int
        Where the message begins.
    size : int
        Where the file ends.

    Raises
    ------
    ClientError
        ``unreadable``.
    struct.error
        When the message is not whole.
    """
    if at == size:
        return
    file.seek(at)
    marker, length = MESSAGE_PREFIX.unpack(file.read(8))
    if marker != CONTINUATION or length <= 0:
        # The mark of the end, or what Arrow refuses.
        return
    if at + 8 + length > size:
        raise struct.error
    head = memoryview(file.read(length))
    kind, batch, body = message_header(head)
    begin = at + 8 + length
    if body < 0 or begin + body > size:
        raise struct.error
    if kind != _RECORD_BATCH_ARROW_SIZES or not table_field(head, batch, 3):
        return
    vector = table_field(head, batch, 2)
    if not vector:
        raise struct.error
    vector += u32(head, vector)
    unfolded = 0
    for number in range(min(u32(head, vector), len(head) // 16)):
        offset, stored = (_LONG.unpack_from(head, vector + 4 + 16 * number + part)[0] for part in (0, 8))
        if stored >= 8 and 0 <= offset <= body - 8:
            file.seek(begin + offset)
            said = _LONG.unpack(file.read(8))[0]
            unfolded += stored if said == _AS_IT_IS else max(0, said)
    check_unfolded(name, unfolded, body)


class CompressedRows(Exception):
    """Steps cannot be seen without unpacking."""


class ArrowsMap:
    """Where the whole messages of an Arrow stream file lie, whose first column is ``step``, and which steps they hold. Of a file that grows only what was appended is looked at.

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
        self._like: LikeHeads | None = None
        self._cut = False
        self._piece = _FIRST_PIECE_BYTES
        self._kinds: dict[int, pa.RecordBatch] = {}

    def within(self, query: Query) -> tuple[NDArray[np.int64], int]:
        """Return the record batches that have rows of a query, or may have, as they lie: where each begins and ends. And where the last of all that are whole ends.

        Raises
        ------
        OSError
            When the file cannot be read.
        """
        with self._lock:
            self._look_again()
            found = self._messages.among(query.first, query.last)
            others = [number for number, kind in self._kinds.items() if not _may_match(kind, query)]
            if others:
                found = found[~np.isin(found[:, 4], others)]
            return found[:, :2], self._at

    def indexed(self, since: int = 0) -> tuple[NDArray[np.int64], dict[int, pa.RecordBatch]]:
        """Return the messages from a place of the file on of which the index beside it says all that there is to know, as :meth:`MessageMap.all` does, up to the first that has several steps or is of no kind.

        And the kinds: the different rows that messages of one have, in the columns of :func:`indexed_columns`, and how often each comes as ``rows``.

        Raises
        ------
        OSError
            When the file cannot be read.
        """
        with self._lock:
            self._look_again(walks=False)
            found = self._messages.all()
            found = found[found[:, 0] >= since]
            known = np.isin(found[:, 4], list(self._kinds)) & (found[:, 2] == found[:, 3])
            return found if known.all() else found[: int(np.argmin(known))], self._kinds

    def end(self) -> tuple[bool, NDArray[np.int64]]:
        """Return whether the file ends within a message, or is damaged behind the last whole one, and the record batches as :meth:`MessageMap.all` does.

        Raises
        ------
        CompressedRows
            When the rows have to be read for it.
        OSError
            When the file cannot be read.
        """
        with self._lock:
            if not self._look_again():
                raise CompressedRows
            return self._cut, self._messages.all()

    def _look_again(self, *, walks: bool = True) -> bool:
        """Look at what was appended, or only at the index of what was not looked at yet; say whether the rows can be seen into."""
        with open_plain(self._path, buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            identity = arrows_identity(self._path)
            if identity != self._identity or size < self._at:
                # Another recording took its place, or the same one without its oldest rows.
                self._forget()
                self._identity = identity
            self._cut = False
            try:
                while self._at < size and (walks or not self._at):
                    if not self._take_many(file, size) and not self._take_one(file, size):
                        break
            except struct.error:
                # The last message is not whole yet, or this is no message.
                self._cut = True
            except CompressedRows:
                return False
        return True

    def _take_one(self, file: BinaryIO, size: int) -> bool:
        """Take in the next message; False at the mark of the end, or where a message is of another kind than it should be."""
        found = _message(file, self._at, size)
        if found is None:
            return False
        if found.kind != (_RECORD_BATCH if self._at else _SCHEMA):
            raise struct.error
        if self._at:
            self._messages.add(self._at, found.end, found.first_step, found.last_step)
            if found.end - self._at <= _SMALL_BYTES:
                self._like = LikeHeads.of(_read(file, self._at, found.body - self._at))
            else:
                self._like = None
            self._at = found.end
        else:
            self._at = found.end
            self._take_indexed(file, size)
        return True

    def _take_indexed(self, file: BinaryIO, size: int) -> None:
        """Take in the messages that the index beside the file knows, if it is one of this file."""
        try:
            index = read_index(index_path(self._path))
        except OSError:
            return
        if index is None or index.begin != self._at:
            return
        found = index.messages[index.messages[:, 0] <= size]
        begins = np.append(index.begin, found[:-1, 0])
        if not len(found):
            return
        try:
            if (
                zlib.crc32(_read(file, self._at, min(FIRST_BYTES, int(found[0, 0]) - self._at)))
                != index.first
            ):
                return
            # Some of them are looked at, the last one too.
            for place in np.unique(np.linspace(0, len(found) - 1, _LOOKED_AT).astype(int)).tolist():
                message = _message(file, int(begins[place]), size)
                said = (message.kind, message.end, message.first_step, message.last_step) if message else ()
                if said != (_RECORD_BATCH, *found[place, :3].tolist()):
                    return
        except (struct.error, CompressedRows):
            return
        # What cannot be a kind of this stream's rows is none: its messages are read.
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError, LookupError):
            schema = pa.ipc.read_schema(pa.py_buffer(_read(file, 0, self._at)))
            for number, kind in index.kinds.items():
                self._kinds[number] = kind_rows(kind, schema)
        self._messages.extend(begins, *found.T)
        self._at = int(found[-1, 0])

    def _take_many(self, file: BinaryIO, size: int) -> bool:
        """Take in as many messages as have a head like that of the last one, if there are any: most of a recording's have."""
        like = self._like
        if like is None or self._at + like.size > size or self._at % 8:
            return False
        begin = self._at
        data = _read(file, begin, min(self._piece, size - begin) & -8)
        self._piece = _FIRST_PIECE_BYTES
        words = np.frombuffer(data, np.int64)
        chain = like.chain(words)
        chain = chain[chain <= len(data)]
        if len(chain) < 2:
            return False
        heads = like.read(words, chain[:-1] // 8)
        good = like.like(heads)
        rows, offset, length = (heads[:, at] for at in (like.rows, like.buffers + 2, like.buffers + 3))
        good &= (rows > 0) & (rows <= length // 8) & (offset >= 0) & (offset % 8 == 0)
        good &= offset <= chain[1:] - chain[:-1] - like.size - 8 * rows
        count = len(good) if good.all() else int(np.argmin(good))
        if not count:
            # One that is unlike, though it began as they do.
            return False
        rows, begins = rows[:count], chain[:count]
        starts = np.cumsum(rows) - rows
        steps = words[
            np.repeat((begins + like.size + offset[:count]) // 8 - starts, rows) + np.arange(rows.sum())
        ]
        low, high = np.minimum.reduceat(steps, starts), np.maximum.reduceat(steps, starts)
        self._messages.extend(begin + begins, begin + chain[1 : count + 1], low, high, np.zeros_like(low))
        self._at = begin + int(chain[count])
        self._piece = min(_PIECE_BYTES, 2 * len(data))
        return True


def _may_match(kind: pa.RecordBatch, query: Query) -> bool:
    """Whether a message of a kind may have rows of a query."""
    asked = replace(query, first=None, last=None, steps=None, measured=False)
    expression = asked.expression()
    if expression is None or not set(asked.columns()) <= set(kind.schema.names):
        return True
    try:
        return bool(kind.filter(expression).num_rows)
    except (pa.ArrowException, TypeError):
        return True


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


@dataclass(frozen=True)
class _Message:
    kind: int
    body: int
    end: int
    first_step: int
    last_step: int


def _message(file: BinaryIO, at: int, size: int) -> _Message | None:
    """Return what the head of the message at a place says; None for the mark of the end. Raises ``struct.error`` where it is not whole."""
    marker, length = MESSAGE_PREFIX.unpack(_read(file, at, 8))
    if marker == 0 or (marker == CONTINUATION and length == 0):
        return None
    if marker != CONTINUATION or length < 0 or at + 8 + length > size:
        raise struct.error
    head = memoryview(_read(file, at + 8, length))
    kind, header, body = message_header(head)
    end = at + 8 + length + body
    if body < 0 or end > size:
        raise struct.error
    steps = _steps(file, head, header, at + 8 + length, end) if kind == _RECORD_BATCH else (0, 0)
    return _Message(kind, at + 8 + length, end, *steps)


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


def _read(file: BinaryIO, at: int, length: int) -> bytes:
    file.seek(at)
    found = bytearray()
    while len(found) < length:
        # What is read unbuffered may come in parts, and a file may end earlier than it did.
        part = file.read(length - len(found))
        if not part:
            raise struct.error
        if len(part) == length:
            return part
        found += part
    return bytes(found)
