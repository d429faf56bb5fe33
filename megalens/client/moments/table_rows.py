"""Rows of the stream ``moments`` in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...protocol import empty_table
from .duck import duck_cursor
from .rows import Progress, StatIndex
from .sql_chunks import sql_chunks
from .wanted import Chunk, Wanted

__all__ = ["IndexedRows", "TableRows", "stats_of"]

_FEW_CHUNKS = 64


class IndexedRows(ABC):
    """Rows of which the index is asked for once a version."""

    def __init__(self) -> None:
        self._known: tuple[str | None, list[StatIndex], bool] = (None, [], False)

    @property
    @abstractmethod
    def version(self) -> str:
        """Changes whenever there is more."""

    @abstractmethod
    def relation(self, connection: Any) -> str:
        """Return SQL for the rows."""

    def chunks(self, connection: Any, wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of whole steps."""
        return sql_chunks(connection, self.relation(connection), self.stats(), wanted)

    @property
    def samples(self) -> bool:
        """Whether steps are known as samples too."""
        self.stats()
        return self._known[2]

    def stats(self) -> list[StatIndex]:
        """Return what there is."""
        version = self.version
        if self._known[0] != version:
            with duck_cursor() as connection:
                stats, samples = stats_of(connection, self.relation(connection))
            self._known = (version, stats, samples)
        return self._known[1]


class TableRows(IndexedRows):
    """Rows that are appended to, such as those that a live run sent."""

    def __init__(self) -> None:
        super().__init__()
        self._table = empty_table("moments")
        self._appended = 0

    @property
    def version(self) -> str:
        """Changes whenever there is more."""
        return f"{self._appended}-{self._table.num_rows}"

    @property
    def warnings(self) -> list[str]:
        """None."""
        return []

    def append(self, table: pa.Table) -> None:
        """Add rows at the end."""
        self._table = pa.concat_tables([self._table, table])
        if self._table.column(0).num_chunks > _FEW_CHUNKS:
            self._table = self._table.combine_chunks()
        self._appended += 1

    def refresh(self, progress: Progress | None = None) -> bool:
        """Nothing is looked for: rows are appended."""
        return False

    def relation(self, connection: Any) -> str:
        """Return SQL for the rows."""
        connection.register("memory", self._table)
        return "SELECT * FROM memory"

    def close(self) -> None:
        """Let go of the rows. Safe twice."""
        self._table = empty_table("moments")
        self._appended += 1


def stats_of(connection: Any, relation: str) -> tuple[list[StatIndex], bool]:
    """Return what there is of each stat, and whether steps are known as samples too, by asking the rows themselves."""
    found: dict[str, list[tuple[str, int, int, int]]] = {}
    samples = -1
    for stat, name, rows, first, last, most in connection.execute(
        f"SELECT stat, name, count(*), min(step), max(step), max(samples) FROM ({relation}) GROUP BY stat, name"
    ).fetchall():
        found.setdefault(stat, []).append((name, rows, first, last))
        samples = max(samples, most)
    steps = dict(
        connection.execute(f"SELECT stat, count(DISTINCT step) FROM ({relation}) GROUP BY stat").fetchall()
    )
    return [
        StatIndex(
            stat,
            sum(entry[1] for entry in entries),
            min(entry[2] for entry in entries),
            max(entry[3] for entry in entries),
            steps[stat],
            sorted(entry[0] for entry in entries),
        )
        for stat, entries in found.items()
    ], samples >= 0
