"""Reading a stream that grows, or that nobody closed, up to its last whole message."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol import Stream, open_plain
from .arrows_map import ArrowsMap, check_message_size
from .joined_messages import Choice, JoinedMessages
from .query import Query
from .recorded_parquet import DAMAGE

__all__ = ["ArrowStream"]

_PLACE = "place of the row"


class ArrowStream:
    """One reading of an Arrow stream file: the rows that match, in the order in which they were written.

    Parameters
    ----------
    path : Path
        The file.
    stream : Stream
        Its declaration.
    messages : ArrowsMap
        What is known of its messages.
    query : Query
        Which rows.
    columns : list of str
        Those to read, in the stream's order, those that the query looks at among them.

    Attributes
    ----------
    read_to : int
        Where ends what has been read.
    cut : bool
        Whether the reading ended within a message, or before damage.
    """

    def __init__(
        self,
        path: Path,
        stream: Stream,
        messages: ArrowsMap,
        query: Query,
        columns: list[str],
    ) -> None:
        self._path = path
        self._stream = stream
        self._messages = messages
        self._query = query
        self._expression = query.expression()
        self._columns = columns
        self.read_to = 0
        self.cut = False
        self._is_over = False

    def batches(
        self, reader: pa.RecordBatchStreamReader, source: pa.NativeFile, since: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Parameters
        ----------
        reader : pyarrow.RecordBatchStreamReader
            Of ``source``.
        source : file
            The file, as Arrow has opened it.
        since : int
            Where in the file to begin: at a message, or 0.
        """
        begin = max(since, source.tell())
        found, end = self._messages.within(self._query)
        found = found[found[:, 0] >= begin]
        read = [name for name in self._columns if name in reader.schema.names]
        choice = self._choice()
        with open_plain(self._path, buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if len(found) and found[-1, 1] >= size:
                # A crash of the machine leaves only the last message half written: Arrow checks all of it.
                end = int(found[-1, 0])
                found = found[:-1]
            joined = JoinedMessages(file, reader.schema)
            for piece in joined.pieces(found):
                batch = joined.read(piece, read, choice)
                if batch is not None:
                    self.read_to = int(piece[-1, 1])
                    yield from self._told(batch)
                    continue
                for place in piece[:, 0].tolist():
                    source.seek(place)
                    yield from self._next(reader, source, file, size)
            if not self.cut:
                source.seek(max(begin, end))
            while not self.cut and not self._is_over:
                yield from self._next(reader, source, file, size)

    def _choice(self) -> Choice | None:
        query, asked = self._query, self._query.columns()
        if self._expression is None:
            return None

        def choose(batch: pa.RecordBatch) -> NDArray[np.int64]:
            filled = self._stream.with_later_columns(batch, asked)
            kept = filled.append_column(_PLACE, pa.array(np.arange(batch.num_rows))).filter(self._expression)
            found: NDArray[np.int64] = kept.column(_PLACE).to_numpy()
            return found

        # Between the bounds of several ranges not every step is wanted.
        bounds = (query.first, query.last) if query.steps is None else (0, -1)
        return Choice(asked, choose, bounds)

    def _told(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows:
            yield self._stream.with_later_columns(batch, self._columns)

    def _next(
        self, reader: pa.RecordBatchStreamReader, source: pa.NativeFile, file: BinaryIO, size: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield what matches of the next message, read by Arrow; nothing after damage."""
        if self.cut:
            return
        try:
            check_message_size(file, self._path.name, source.tell(), size)
            batch = reader.read_next_batch()
            if source.tell() >= size:
                batch.validate(full=True)
            batch = batch.select([name for name in batch.schema.names if name in self._columns])
            batch.validate(full=True)
        except StopIteration:
            self._is_over = True
            return
        except (*DAMAGE, struct.error):
            self.cut = True
            return
        batch = self._stream.with_later_columns(batch, self._columns)
        if self._expression is not None:
            batch = batch.filter(self._expression)
        self.read_to = source.tell()
        yield from self._told(batch)
