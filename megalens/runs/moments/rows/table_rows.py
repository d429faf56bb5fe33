"""Rows of the stream ``moments`` as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from ....protocol import MomentIndex, StatIndex, empty_table
from .moment_rows import Progress
from .spilled_rows import SpilledRows
from .sql_chunks import sql_chunks
from .wanted import Chunk, Wanted

__all__ = ["TableRows"]

_FEW_CHUNKS = 64
_HELD_ROWS = 1_000_000


class TableRows:
    """Rows that are appended to, such as those of a recording that grows. Of many the older ones lie in files of the cache."""

    def __init__(self) -> None:
        self._table = empty_table("moments")
        self._index = MomentIndex()
        self._spilled = SpilledRows()
        self._appended = 0

    @property
    def version(self) -> str:
        """Changes whenever there is more."""
        return str(self._appended)

    @property
    def samples(self) -> bool:
        """Whether steps are known as samples too."""
        return self._index.samples

    @property
    def warnings(self) -> list[str]:
        """None."""
        return []

    def append(self, table: pa.Table) -> None:
        """Add rows at the end."""
        for batch in table.to_batches():
            self._index.add(batch)
        self._table = pa.concat_tables([self._table, table])
        if self._table.num_rows > _HELD_ROWS:
            self._spilled.add(self._table)
            self._table = empty_table("moments")
        elif self._table.column(0).num_chunks > _FEW_CHUNKS:
            self._table = self._table.combine_chunks()
        self._appended += 1

    def refresh(self, progress: Progress | None = None) -> bool:
        """Nothing is looked for: rows are appended."""
        return False

    def stats(self) -> list[StatIndex]:
        """Return what there is."""
        return self._index.stats()

    def relation(self, connection: Any) -> str:
        """Return SQL for the rows."""
        connection.register("memory", self._table)
        return " UNION ALL ".join(["SELECT * FROM memory", *self._spilled.relations()])

    def chunks(self, connect: Callable[[], Any], wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of whole steps."""
        connection = connect()
        return sql_chunks(connection, self.relation(connection), self.stats(), wanted)

    def close(self) -> None:
        """Let go of the rows. Safe twice."""
        self._table, self._index = empty_table("moments"), MomentIndex()
        self._spilled.close()
        self._appended += 1
