"""Rows that a live run sent, together with those that its hub recorded on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....protocol import StatIndex, empty_table
from .duck import duck_cursor
from .index_sql import stats_of
from .moment_rows import Progress
from .recorded_rows import RecordedRows
from .sql_chunks import sql_chunks
from .wanted import Chunk, Wanted

__all__ = ["LiveRows"]


class LiveRows:
    """What the recording holds, and of what arrived the rows that it does not hold yet.

    Parameters
    ----------
    received : callable
        Returns the rows that arrived and are still in memory.
    folder : Path or None
        Where the hub records, where it does and this machine has it.
    """

    def __init__(self, received: Callable[[], pa.Table], folder: Path | None) -> None:
        self._received = received
        self._recorded = RecordedRows(folder) if folder is not None else None
        self._table = empty_table("moments")
        self._changes = 0
        self._last: tuple[int, int] = (0, -1)
        self._known: tuple[int, list[StatIndex], bool] = (-1, [], False)

    @property
    def version(self) -> str:
        """Changes whenever there is more."""
        return str(self._changes)

    @property
    def samples(self) -> bool:
        """Whether steps are known as samples too."""
        self.stats()
        return self._known[2]

    @property
    def warnings(self) -> list[str]:
        """None: the newest message of a recording that grows is often not whole yet."""
        return []

    def refresh(self, progress: Progress | None = None) -> bool:
        """Take what arrived and what was recorded since, and say whether there was any."""
        more = self._recorded is not None and self._recorded.refresh(progress)
        self._table = self._received()
        rows = self._table.num_rows
        newest = self._table["step"][rows - 1].as_py() if rows else -1
        more = more or (rows, newest) != self._last
        self._last = (rows, newest)
        self._changes += more
        return more

    def stats(self) -> list[StatIndex]:
        """Return what there is; asked once for each version."""
        if self._known[0] != self._changes:
            with duck_cursor() as connection:
                self._known = (self._changes, *stats_of(connection, self.relation(connection)))
        return self._known[1]

    def chunks(self, connect: Callable[[], Any], wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of whole steps."""
        connection = connect()
        return sql_chunks(connection, self.relation(connection), self.stats(), wanted)

    def relation(self, connection: Any) -> str:
        """Return SQL for the rows."""
        connection.register("received", self._table)
        if self._recorded is None or not self._recorded.stats():
            return "SELECT * FROM received"
        recorded = self._recorded.relation(connection)
        return (
            f"SELECT * FROM ({recorded}) UNION ALL "
            f"SELECT * FROM received ANTI JOIN ({recorded}) USING (stat, step, name, rank)"
        )

    def close(self) -> None:
        """Let go of the rows. Safe twice."""
        self._table = empty_table("moments")
        if self._recorded is not None:
            self._recorded.close()
