"""Reading a packed stream in pieces that are bounded, whatever its file says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..protocol import Stream, open_plain
from .parquet_footer import ParquetChunk, ParquetFooter, ParquetGroup, read_footer
from .parquet_sizes import check_chunk
from .query import Query
from .text_pieces import TextPieces
from .unfolding import check_rows

__all__ = ["DAMAGE", "ParquetStream", "opened_parquet"]

DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, OverflowError, MemoryError)
"""What Python and Arrow answer with where a file is not as it should be."""

_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 * 1024 * 1024


@contextmanager
def opened_parquet(path: Path) -> Iterator[ParquetStream]:
    """Open a packed stream.

    Raises
    ------
    ValueError, OSError, pyarrow.ArrowException, ClientError
        When it cannot be read, also later, while it is read.
    """
    # Only who reads packed streams needs it, and the start should not wait for it.
    import pyarrow.parquet as pq

    # Unbuffered: heads of pages are far apart.
    with open_plain(path, buffering=0) as file:
        found = os.fstat(file.fileno())
        # Nobody can set the time of a change of the file's entry.
        known = _known(path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        with pq.ParquetFile(path) as parquet:
            yield ParquetStream(path, file, known, parquet, pq.ParquetFile)


class _FooterRead:
    """What was read and checked of a file. It is kept for as long as the file is the same, since a run's files are opened for every question."""

    def __init__(self, footer: ParquetFooter) -> None:
        self.footer = footer
        self.checked: set[tuple[int, int]] = set()


@lru_cache(maxsize=16)
def _known(path: Path, *identity: int) -> _FooterRead:
    with open_plain(path, buffering=0) as file:
        return _FooterRead(read_footer(file))


class ParquetStream:
    """An open file. Made by :func:`opened_parquet`.

    Attributes
    ----------
    size : int
        Its bytes.
    groups : tuple of ParquetGroup
        Its row groups. Arrow must not be asked for the columns of one: it ends the process where they are not as they should be.
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
        check_rows(path.name, max(known.footer.rows, sum(rows), *rows, -min([0, *rows]) << 40), self.size)
        self._leaves: dict[str, list[int]] = {}
        schema = parquet.metadata.schema
        for at in range(len(schema)):
            self._leaves.setdefault(schema.column(at).path.partition(".")[0], []).append(at)
        if any(len(group.chunks) != len(schema) for group in self.groups):
            raise ValueError(f"its row groups must have {len(schema)} columns")

    @property
    def metadata(self) -> Any:
        """What its footer says."""
        return self._parquet.metadata

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
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
                check_chunk(self._file, self._path.name, group.chunks[leaf], kind, lists)
                self._checked.add((at, leaf))

    def chunk(self, name: str, at: int) -> ParquetChunk:
        """Return what the footer says of a column that is no list in a row group."""
        return self.groups[at].chunks[self._leaves[name][0]]

    def column(self, name: str, at: int) -> Iterator[pa.Array]:
        """Yield the values of a column in a row group, a few MiB at a time."""
        self.check_group(at, [name])
        for batch in self._parquet.iter_batches(_BATCH_ROWS, row_groups=[at], columns=[name]):
            yield batch.column(0)

    def batches(self, stream: Stream, columns: list[str], query: Query) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match with ``columns`` of the stream's types, a few MiB at a time.

        Parameters
        ----------
        stream : Stream
            Its declaration.
        columns : list of str
            What is read; of the stream and in the file.
        query : Query
            Which rows.
        """
        filters = query.expression()
        read = list(dict.fromkeys([*columns, *query.columns()]))
        wanted = pa.schema([stream.schema.field(name) for name in columns])
        # Of texts the places in a dictionary are read, which take four bytes a row however long the texts are.
        words = [
            self.metadata.schema.column(leaf).path
            for name in read
            for leaf in self._leaves.get(name, ())
            if self.metadata.schema.column(leaf).physical_type == "BYTE_ARRAY"
        ]
        pieces = TextPieces(self._path.name, self.size)
        with self._reopen(self._path, metadata=self.metadata, read_dictionary=words) as parquet:
            for at in self._groups(query):
                self.check_group(at, read)
                for batch in parquet.iter_batches(self._batch_rows(at, read), row_groups=[at], columns=read):
                    kept = batch if filters is None else batch.filter(filters)
                    for piece in pieces.cut(kept.select(columns), wanted):
                        # Texts may be no UTF-8.
                        piece.validate(full=True)
                        yield piece

    def _groups(self, query: Query) -> Iterator[int]:
        """Yield the row groups that may have rows of a query's steps."""
        for at in range(len(self.groups)):
            step = self.chunk("step", at)
            early = query.first is not None and step.high is not None and step.high < query.first
            late = query.last is not None and step.low is not None and step.low > query.last
            if not early and not late:
                yield at

    def _batch_rows(self, at: int, columns: list[str]) -> int:
        # By what the footer says: more rows are no harm, since all of the group has been checked.
        group = self.groups[at]
        size = sum(group.chunks[leaf].unfolded for name in columns for leaf in self._leaves.get(name, ()))
        return max(1, min(_BATCH_ROWS, group.rows * _BATCH_BYTES // max(1, size)))
