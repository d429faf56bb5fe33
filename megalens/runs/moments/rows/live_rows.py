"""Rows that a live run sent, together with those that its hub recorded on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....protocol import empty_table
from ..source import MomentRows
from .pieces import MemoryPiece, Piece, PieceReading, Progress, Wanted, complete_steps
from .recorded_rows import RecordedRows

# Rows that arrived and may not be recorded yet.
_MOST_BEHIND = 200_000
_KEY = ["name_index", "step", "rank"]


class LiveRows(MomentRows):
    """The recorded rows, and of those that arrived the ones that are not recorded yet.

    ``received`` returns the arrived rows in memory; ``folder`` is where the hub records, if this machine has
    it.
    """

    def __init__(self, received: Callable[[], pa.Table], folder: Path | None) -> None:
        super().__init__()
        self._received = received
        self._recorded = RecordedRows(folder) if folder is not None else None
        self._table = empty_table("moments")
        self._last: tuple[int, int] = (0, -1)
        self._pieces: list[Piece] | None = []

    def pieces(self) -> list[Piece]:
        if self._pieces is None:
            recorded = self._recorded.pieces() if self._recorded is not None else []
            fresh = _not_in(recorded, self._table) if recorded else self._table
            self._pieces = [*recorded, *([MemoryPiece(fresh)] if fresh.num_rows else [])]
        return self._pieces

    def refresh(self, progress: Progress | None = None) -> bool:
        more = self._recorded is not None and self._recorded.refresh(progress)
        self._table = self._received()
        rows = self._table.num_rows
        newest = self._table["step"][rows - 1].as_py() if rows else -1
        if more or (rows, newest) != self._last:
            self._last, self._pieces = (rows, newest), None
            self._changed()
            return True
        return False

    def close(self) -> None:
        self._table, self._pieces, self._stats = empty_table("moments"), [], {}
        if self._recorded is not None:
            self._recorded.close()


def _not_in(recorded: list[Piece], table: pa.Table) -> pa.Table:
    """Return the arrived rows that are not recorded. Only the newest are compared: the recorder is close."""
    if not table.num_rows:
        return table
    newest = table["step"].slice(max(0, table.num_rows - _MOST_BEHIND))
    first = pc.min(newest).as_py()
    table = table.filter(pc.greater_equal(table["step"], first))
    arrived = MemoryPiece(table)
    reading = PieceReading(
        Wanted({stat: one.names for stat, one in arrived.listed.items()}, ("rank",), first=first)
    )
    index = reading.name_indices(*(arrived.table[name].chunk(0) for name in ("stat", "name")))
    own = pa.table(
        {"name_index": index, "step": table["step"], "rank": table["rank"], "row": np.arange(len(index))}
    )
    known = [
        pa.table({name: chunk[name] for name in _KEY}) for chunk in complete_steps(recorded, reading.wanted)
    ]
    if known:
        own = own.join(pa.concat_tables(known), _KEY, join_type="left anti")
    return table.take(np.sort(own["row"].to_numpy()))
