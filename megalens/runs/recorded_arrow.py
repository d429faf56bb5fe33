"""Reading an Arrow stream file that grows, or that nobody closed, up to its last complete message."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from ..protocol import Stream, file_name, open_plain
from ..protocol.arrow_columns import CONTINUATION, MESSAGE_PREFIX, message_header, table_field, u32
from .query import Query
from .run_header import unreadable

DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError)
"""Errors of Python and Arrow over a damaged file."""

# A recorder's row group has 16 MiB and at most one frame more, so that even a recording of zeros is within
# this.
_ANY_BYTES = 128 * 1024 * 1024
_TIMES = 64
_ANY_ROWS = 2_000_000
_ROWS_A_BYTE = 32
_LONG = struct.Struct("<q")
_RECORD_BATCH = 3
_AS_IT_IS = -1
_HEAD_BYTES = 1 << 16
# Messages are small, one for each frame, and a filter costs as much for one as for hundreds of them.
_TOGETHER_BYTES = 1 << 22
_TOGETHER = 512


class ArrowStream:
    """One reading of an Arrow stream file: the matching rows, in the order in which they were written.

    ``read_to`` is the end of what was read, at a message, or 0; ``cut`` says that it ended within one, or
    before damage.
    """

    def __init__(self, path: Path, stream: Stream, query: Query, columns: list[str]) -> None:
        self._path = path
        self._stream = stream
        self._expression = query.expression()
        wanted = {*columns, *query.columns()}
        self._columns = [name for name in stream.schema.names if name in wanted]
        self.read_to = 0
        self.cut = False

    def batches(self, since: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the rows behind the offset ``since``, where an earlier reading ended.

        Raises ``OSError`` when the file cannot be opened, ``ClientError`` (``unreadable``) when its columns
        are not the stream's or a message unfolds to too much.
        """
        self.read_to = since
        pending: list[pa.RecordBatch] = []
        size = 0
        for batch, end, unfolded in self._messages(since):
            pending.append(batch)
            size += unfolded
            if size >= _TOGETHER_BYTES or len(pending) == _TOGETHER:
                self.read_to = end
                yield from self._matching(pending)
                pending, size = [], 0
        if pending:
            self.read_to = end
            yield from self._matching(pending)

    def _messages(self, since: int) -> Iterator[tuple[pa.RecordBatch, int, int]]:
        """Yield the columns of each complete message, checked, its end, and how many bytes it unfolds to."""
        with open_plain(self._path) as file:
            # What is appended meanwhile is left to the next reading, so that only the last message may be
            # incomplete.
            size = os.fstat(file.fileno()).st_size
            reader = self._opened(file)
            if reader is None:
                self.cut = True
                return
            names = reader.schema.names
            chosen = [name for name in names if name in self._columns]
            at = max(since, file.tell())
            while at < size:
                try:
                    unfolded = check_message_size(file, file_name(self._path), at, size)
                    file.seek(at)
                    batch = reader.read_next_batch()
                    at = file.tell()
                    if at >= size:
                        # A crash of the machine may leave the last message incomplete at its full length: all
                        # of it is checked.
                        batch.validate(full=True)
                    batch = batch if chosen == names else batch.select(chosen)
                    batch.validate(full=True)
                except StopIteration:
                    return
                except (*DAMAGE, struct.error):
                    self.cut = True
                    return
                yield batch, at, unfolded

    def _opened(self, file: BinaryIO) -> pa.RecordBatchStreamReader | None:
        """Return a reader; None where not even the schema is complete: nothing was recorded."""
        try:
            reader = pa.ipc.open_stream(pa.PythonFile(file, "r"))
            names = reader.schema.names
        except (pa.ArrowException, OSError, ValueError):
            return None
        schema = self._stream.schema
        expected = pa.schema([field for field in schema if field.name in names])
        if self._stream.lacking(names) or not reader.schema.equals(expected, check_metadata=False):
            raise unreadable(
                f"The columns of {file_name(self._path)} are {', '.join(names)[:300]}, and "
                f"{', '.join(schema.names)} were expected."
            )
        return reader

    def _matching(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        batch = self._stream.with_later_columns(batch, self._columns)
        if self._expression is not None:
            batch = batch.filter(self._expression)
        if batch.num_rows:
            yield batch


def arrows_identity(path: Path) -> tuple[int, int]:
    """Return a growing file's inode and the checksum of its head: an inode alone is soon reused."""
    with open_plain(path, buffering=0) as file:
        head = file.read(_HEAD_BYTES)
        return os.fstat(file.fileno()).st_ino, zlib.crc32(head) if len(head) == _HEAD_BYTES else 0


def check_message_size(file: BinaryIO, name: str, at: int, size: int) -> int:
    """Refuse a message whose compressed buffers claim to unfold to too much: Arrow allocates before it looks
    at them.

    ``at`` is where the message begins, ``size`` where the file ends. Returns how many bytes its body unfolds
    to. Raises ``ClientError`` (``unreadable``), or ``struct.error`` for an incomplete message.
    """
    if at == size:
        return 0
    file.seek(at)
    marker, length = MESSAGE_PREFIX.unpack(file.read(8))
    if marker != CONTINUATION or length <= 0:
        # The mark of the end, or what Arrow refuses.
        return 0
    if at + 8 + length > size:
        raise struct.error
    head = memoryview(file.read(length))
    kind, batch, body = message_header(head)
    begin = at + 8 + length
    if body < 0 or begin + body > size:
        raise struct.error
    if kind != _RECORD_BATCH or not table_field(head, batch, 3):
        return body
    vector = table_field(head, batch, 2)
    if not vector:
        raise struct.error
    vector += u32(head, vector)
    unfolded = 0
    for number in range(min(u32(head, vector), len(head) // 16)):
        offset, stored = (_LONG.unpack_from(head, vector + 4 + 16 * number + part)[0] for part in (0, 8))
        if stored >= 8 and 0 <= offset <= body - 8:
            file.seek(begin + offset)
            claimed = _LONG.unpack(file.read(8))[0]
            unfolded += stored if claimed == _AS_IT_IS else max(0, claimed)
    check_unfolded(name, unfolded, body)
    return unfolded


class FileStamp(NamedTuple):
    """What changes when a file does; nobody can set the time of a change of its entry."""

    number: int
    size: int
    written: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileStamp:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


# What a recorded file may claim.
def check_unfolded(name: str, unfolded: int, stored: int) -> None:
    """Raise ``unreadable`` for what unfolds to over 128 MiB and over 64 times what is stored of it.

    A few compressed bytes can stand for any number.
    """
    if unfolded > max(_ANY_BYTES, _TIMES * stored):
        most = f"at most {_TIMES} times as many are read"
        raise unreadable(f"{name}: {stored:,} bytes of it unfold to {unfolded:,}, and {most}.")


def check_rows(name: str, rows: int, stored: int) -> None:
    """Raise ``unreadable`` for a file that claims more rows than it can have."""
    if rows < 0 or rows > max(_ANY_ROWS, _ROWS_A_BYTE * stored):
        raise unreadable(f"{name}: it says that it has {rows:,} rows in {stored:,} bytes.")
