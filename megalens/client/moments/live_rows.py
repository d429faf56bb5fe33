"""Rows that a live run sent, together with those that its hub recorded on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...protocol import empty_table
from .recorded_rows import RecordedRows
from .rows import Progress
from .table_rows import IndexedRows

__all__ = ["LiveRows"]


class LiveRows(IndexedRows):
    """What the recording holds, and of what arrived the rows that it does not hold yet.

    Parameters
    ----------
    received : callable
        Returns the rows that arrived and are still in memory.
    folder : Path or None
        Where the hub records, where it does and this machine has it.
    """

    def __init__(self, received: Callable[[], pa.Table], folder: Path | None) -> None:
        super().__init__()
        self._received = received
        self._recorded = RecordedRows(folder) if folder is not None else None
        self._table = empty_table("moments")
        self._changes = 0
        self._last: tuple[int, int] = (0, -1)

    @property
    def version(self) -> str:
        """Changes whenever there is more."""
        return str(self._changes)

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
