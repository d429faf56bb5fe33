"""Reading a packed stream in bounded pieces, whatever its file claims."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol import Stream, file_name, open_plain
from . import arrow_compute as pc
from .parquet_footer import (
    I32,
    CutShort,
    ParquetChunk,
    ParquetFooter,
    ParquetGroup,
    ThriftReader,
    read_footer,
)
from .query import Query
from .recorded_arrow import FileStamp, check_rows, check_unfolded

_HEAD = 512
_MOST_HEAD = 1024 * 1024
_MOST_PAGES = 100_000
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Texts that share their beginnings with the one before: a page of these unfolds by itself.
_SHARED_BEGINNINGS = 7
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
# As in Parquet's `parquet.thrift`: kind, sizes in memory and file, and of values their number and encoding.
_PAGE = {1: I32, 2: I32, 3: I32, 5: {1: I32, 2: I32}, 8: {1: I32, 4: I32}}

_PIECE_BYTES = 16 * 1024 * 1024
_FEW_BYTES = 64 * 1024


class TextPieces:
    """Counts the texts of one reading of a file, and cuts batches so that a piece has few MiB of them."""

    def __init__(self, name: str, stored: int) -> None:
        self._name = name
        self._stored = stored
        self._unfolded = 0

    def cut(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield pieces with the types of ``schema``; raises ``unreadable`` when the texts are too many."""
        if not batch.num_rows:
            return
        if batch.schema.types == schema.types:
            # Numbers, or few texts.
            yield batch
            return
        # Arrays of numpy made of Arrow's import pandas, which takes longer than all else of a short command.
        most = sum(map(_most_text_bytes, batch.columns))
        if most <= _FEW_BYTES:
            self._unfolded += most
            check_unfolded(self._name, self._unfolded, self._stored)
            yield batch.cast(schema)
            return
        sizes = sum((_text_bytes(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))
        ends = np.cumsum(sizes)
        self._unfolded += int(ends[-1])
        check_unfolded(self._name, self._unfolded, self._stored)
        begin = 0
        while begin < batch.num_rows:
            done = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + _PIECE_BYTES, side="right")))
            yield batch.slice(begin, end - begin).cast(schema)
            begin = end


def _most_text_bytes(column: pa.Array) -> int:
    """Return what the texts of a column take at most, as if each were its longest."""
    kind: Any = column.type
    if pa.types.is_list(kind):
        return _most_text_bytes(column.flatten())
    if not pa.types.is_dictionary(kind):
        return 0
    return len(column) * (pc.max(pc.binary_length(column.dictionary)).as_py() or 0)


def _text_bytes(column: pa.Array) -> NDArray[np.int64]:
    """Return how long the texts of each row are together; 0 for what is no text."""
    kind: Any = column.type
    if pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type):
        inner = _text_bytes(column.flatten())
        ends: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])
        offsets: NDArray[np.int64] = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(pc.fill_null(column.value_lengths(), 0).to_numpy())]
        )
        return ends[offsets[1:]] - ends[offsets[:-1]]
    if not pa.types.is_dictionary(kind):
        return np.zeros(len(column), np.int64)
    lengths = pc.fill_null(pc.binary_length(column.dictionary), 0).cast(pa.int64()).to_numpy()
    indices = pc.fill_null(column.indices, 0).to_numpy()
    sizes: NDArray[np.int64] = lengths[indices] if len(lengths) else np.zeros(len(column), np.int64)
    return sizes


def check_chunk(file: BinaryIO, name: str, column: ParquetChunk, kind: str, repeated: bool) -> None:
    """Refuse a column of a row group that unfolds to too much, by the headers of its pages.

    Only the offset of its pages is believed. ``kind`` is its physical type; where it is ``repeated``, a row
    has any number of values, all in memory at once. Raises ``ClientError`` (``unreadable``), or
    ``ValueError`` for pages that are no Parquet.
    """
    at, stored = column.begin, column.stored
    end = at + stored
    if at < 4 or stored < 0 or end > os.fstat(file.fileno()).st_size:
        raise ValueError("its columns must lie within it")
    text = kind not in _WIDTHS
    width = _WIDTHS.get(kind, 4)
    unfolded = values = pages = 0
    while at < end:
        pages += 1
        if pages > _MOST_PAGES:
            raise ValueError(f"its columns must have at most {_MOST_PAGES:,} pages")
        head, length = _page_head(file, at, end)
        size, packed = head.get(2, -1), head.get(3, -1)
        if size < 0 or packed < 0:
            raise ValueError("its pages must have a size")
        # One page is in memory at a time, of texts all that a batch needs.
        unfolded = unfolded + size if text else max(unfolded, size)
        if head.get(1) in (_DATA, _DATA_2):
            field, encoding = (5, 2) if head[1] == _DATA else (8, 4)
            page = head.get(field, {})
            values += max(0, page.get(1, 0))
            if text and page.get(encoding) == _SHARED_BEGINNINGS:
                raise ValueError("its texts must be stored one by one, not by what they share")
        at += length + packed
    # A value has two more levels, which mark where lists begin.
    check_unfolded(name, unfolded + (values * (width + 4) if repeated else 0), stored)


def _page_head(file: BinaryIO, at: int, end: int) -> tuple[dict[int, Any], int]:
    most = _HEAD
    while True:
        file.seek(at)
        data = file.read(min(most, end - at))
        try:
            reader = ThriftReader(data)
            return reader.struct(_PAGE), reader.at
        except CutShort:
            if len(data) < most or most >= _MOST_HEAD:
                raise ValueError("its pages must have whole headers") from None
            most *= 16


_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 * 1024 * 1024
# Some 100 bytes each; a segment of a recording has a hundred.
_MOST_CHUNKS = 200_000


@contextmanager
def opened_parquet(path: Path, words: Sequence[str] = ()) -> Iterator[ParquetStream]:
    """Open a packed stream; the columns ``words`` are read as dictionaries.

    Raises ``ValueError``, ``OSError``, ``pyarrow.ArrowException`` or ``ClientError``, also later, while it is
    read.
    """
    # Only readers of packed streams need it, and the start should not wait for it.
    import pyarrow.parquet as pq

    # Unbuffered: heads of pages are far apart.
    with open_plain(path, buffering=0) as file:
        known = _FOOTERS.of(path, file)
        with pq.ParquetFile(path, read_dictionary=list(words)) as parquet:
            yield ParquetStream(path, file, known, parquet, pq.ParquetFile)


class _FooterRead:
    """What was read and checked of a file, for as long as it is the same: every question opens it."""

    def __init__(self, footer: ParquetFooter) -> None:
        self.footer = footer
        self.chunks = 1 + sum(len(group.chunks) for group in footer.groups)
        self.checked: set[tuple[int, int]] = set()


class _Footers:
    """The footers that were read last: a question may look at hundreds of files of a stream."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[Path, FileStamp], _FooterRead] = {}
        self._chunks = 0

    def of(self, path: Path, file: BinaryIO) -> _FooterRead:
        key = path, FileStamp.of(os.fstat(file.fileno()))
        with self._lock:
            found = self._known.pop(key, None)
            if found is not None:
                # The last one used is evicted last.
                self._known[key] = found
                return found
        found = _FooterRead(read_footer(file))
        with self._lock:
            if key not in self._known:
                self._known[key] = found
                self._chunks += found.chunks
            while self._chunks > _MOST_CHUNKS and len(self._known) > 1:
                self._chunks -= self._known.pop(next(iter(self._known))).chunks
        return found


_FOOTERS = _Footers()


class ParquetStream:
    """An open file. Made by :func:`opened_parquet`.

    ``groups`` are checked row groups. Arrow must not be asked for a group's columns: damaged ones end the
    process.
    """

    def __init__(
        self, path: Path, file: Any, known: _FooterRead, parquet: Any, reopen: Callable[..., Any]
    ) -> None:
        self._path = path
        self._file = file
        self._checked = known.checked
        self._parquet = parquet
        self._reopen = reopen
        self.size = path.stat().st_size
        self.groups: tuple[ParquetGroup, ...] = known.footer.groups
        rows = [group.rows for group in self.groups]
        check_rows(
            file_name(path), max(known.footer.rows, sum(rows), *rows, -min([0, *rows]) << 40), self.size
        )
        self._leaves: dict[str, list[int]] = {}
        schema = parquet.metadata.schema
        for at in range(len(schema)):
            self._leaves.setdefault(schema.column(at).path.partition(".")[0], []).append(at)
        if any(len(group.chunks) != len(schema) for group in self.groups):
            raise ValueError(f"its row groups must have {len(schema)} columns")

    @property
    def metadata(self) -> Any:
        return self._parquet.metadata

    @property
    def schema(self) -> pa.Schema:
        schema: pa.Schema = self._parquet.schema_arrow
        return schema

    def check_group(self, at: int, columns: list[str]) -> None:
        """Refuse a row group of which some columns unfold to too much; raises ClientError and ValueError."""
        group, schema = self.groups[at], self.metadata.schema
        if not group.rows:
            # It has no pages.
            return
        for leaf in (leaf for name in columns for leaf in self._leaves.get(name, ())):
            if (at, leaf) not in self._checked:
                kind, lists = schema.column(leaf).physical_type, schema.column(leaf).max_repetition_level > 0
                check_chunk(self._file, file_name(self._path), group.chunks[leaf], kind, lists)
                self._checked.add((at, leaf))

    def chunk(self, name: str, at: int) -> ParquetChunk:
        """Return the footer's entry for a column that is no list in a row group."""
        return self.groups[at].chunks[self._leaves[name][0]]

    def column(self, name: str, at: int) -> Iterator[pa.Array]:
        """Yield the values of a column in a row group, a few MiB at a time."""
        self.check_group(at, [name])
        for batch in self._parquet.iter_batches(_BATCH_ROWS, row_groups=[at], columns=[name]):
            yield batch.column(0)

    def group(self, at: int, columns: Sequence[str]) -> pa.Table:
        """Return those columns of a row group that the file has, after a check of what they unfold to."""
        there = [name for name in columns if name in self._leaves]
        self.check_group(at, there)
        table: pa.Table = self._parquet.read_row_group(at, columns=there)
        # A text's index may be outside of its dictionary.
        table.validate(full=True)
        return table

    def steps(self) -> tuple[int, int] | None:
        """Return the least and the largest step, from the footer if possible; None without rows."""
        found: list[int] = []
        for at, group in enumerate(self.groups):
            step = self.chunk("step", at)
            if step.low is not None and step.high is not None:
                found += [step.low, step.high]
            elif group.rows:
                figures = [pc.min_max(steps).as_py() for steps in self.column("step", at)]
                found += [step for each in figures for step in each.values() if step is not None]
        return (min(found), max(found)) if found else None

    def only(self, name: str) -> int | None:
        """Return the whole number that a column has in all rows, where the footer says that it is one."""
        if name not in self._leaves:
            return None
        chunks = [self.chunk(name, at) for at, group in enumerate(self.groups) if group.rows]
        found = {end for chunk in chunks for end in (chunk.low, chunk.high)}
        return found.pop() if len(found) == 1 else None

    def batches(self, stream: Stream, columns: list[str], query: Query) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows with ``columns`` of the stream's types, a few MiB at a time."""
        filters = query.expression()
        read = list(dict.fromkeys([*columns, *query.columns()]))
        wanted = pa.schema([stream.schema.field(name) for name in columns])
        # Texts are read as dictionary indices, four bytes a row however long they are.
        texts = [
            leaf
            for name in read
            for leaf in self._leaves.get(name, ())
            if self.metadata.schema.column(leaf).physical_type == "BYTE_ARRAY"
        ]
        # Few enough to be read as they are, although each row had all of them.
        few = sum(each.rows * each.chunks[leaf].unfolded for each in self.groups for leaf in texts)
        words = [self.metadata.schema.column(leaf).path for leaf in texts] if few > _FEW_BYTES else []
        pieces = TextPieces(file_name(self._path), self.size)
        with self._reopen(self._path, metadata=self.metadata, read_dictionary=words) as parquet:
            for at in self._groups(query):
                self.check_group(at, read)
                for batch in parquet.iter_batches(self._batch_rows(at, read), row_groups=[at], columns=read):
                    # Texts may be no UTF-8, and their indices outside of the dictionary.
                    batch.validate(full=True)
                    matching = batch if filters is None else batch.filter(filters)
                    yield from pieces.cut(matching.select(columns), wanted)

    def _groups(self, query: Query) -> Iterator[int]:
        """Yield the row groups that may have rows of a query's steps."""
        for at in range(len(self.groups)):
            step = self.chunk("step", at)
            early = query.first is not None and step.high is not None and step.high < query.first
            late = query.last is not None and step.low is not None and step.low > query.last
            if not early and not late:
                yield at

    def _batch_rows(self, at: int, columns: list[str]) -> int:
        # By the footer's statistics: too many rows do no harm, since all of the group has been checked.
        group = self.groups[at]
        size = sum(group.chunks[leaf].unfolded for name in columns for leaf in self._leaves.get(name, ()))
        return max(1, min(_BATCH_ROWS, group.rows * _BATCH_BYTES // max(1, size)))
