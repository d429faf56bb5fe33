"""Reading a packed stream in pieces that are bounded, whatever its file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol import Stream, open_plain
from .parquet_sizes import check_chunk, check_footer
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
        check_footer(file)
        with pq.ParquetFile(path) as parquet:
            yield ParquetStream(path, file, parquet, pq.ParquetFile)


class ParquetStream:
    """An open file. Made by :func:`opened_parquet`.

    Attributes
    ----------
    size : int
        Its bytes.
    """

    def __init__(self, path: Path, file: Any, parquet: Any, reopen: Callable[..., Any]) -> None:
        self._path = path
        self._file = file
        self._parquet = parquet
        self._reopen = reopen
        self.size = path.stat().st_size
        metadata = parquet.metadata
        rows = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
        check_rows(path.name, max(metadata.num_rows, sum(rows), *rows, -min([0, *rows]) << 40), self.size)
        self._leaves: dict[str, list[int]] = {}
        for at in range(metadata.num_columns):
            self._leaves.setdefault(metadata.schema.column(at).path.partition(".")[0], []).append(at)

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
        group, schema = self.metadata.row_group(at), self.metadata.schema
        if not group.num_rows:
            # It has no pages.
            return
        for leaf in (leaf for name in columns for leaf in self._leaves.get(name, ())):
            check_chunk(
                self._file, self._path.name, group.column(leaf), schema.column(leaf).max_repetition_level > 0
            )

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
            for at in self._groups(filters):
                self.check_group(at, read)
                for batch in parquet.iter_batches(self._batch_rows(at, read), row_groups=[at], columns=read):
                    kept = batch if filters is None else batch.filter(filters)
                    yield from pieces.cut(kept.select(columns), wanted)

    def _groups(self, filters: pc.Expression | None) -> list[int]:
        """Return the row groups whose statistics do not exclude a filter."""
        if filters is None:
            return list(range(self.metadata.num_row_groups))
        import pyarrow.dataset as ds
        from pyarrow.fs import LocalFileSystem

        fragment = ds.ParquetFileFormat().make_fragment(str(self._path), LocalFileSystem())
        return [group.id for group in fragment.subset(filter=filters).row_groups]

    def _batch_rows(self, at: int, columns: list[str]) -> int:
        # By what the footer says: more rows are no harm, since all of the group has been checked.
        group = self.metadata.row_group(at)
        leaves = [leaf for name in columns for leaf in self._leaves.get(name, ())]
        size = sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
        return int(max(1, min(_BATCH_ROWS, group.num_rows * _BATCH_BYTES // max(1, size))))
