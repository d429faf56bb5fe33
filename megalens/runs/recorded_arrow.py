"""Reading an Arrow stream file that grows, or that nobody closed, up to its last complete message."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from ..protocol import Stream, file_name, open_plain
from ..protocol.arrow_columns import CONTINUATION, MESSAGE_PREFIX, message_header, table_field, u32
from .file_checks import check_unfolded
from .query import Query
from .recorded_parquet import DAMAGE
from .run_header import unreadable

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
