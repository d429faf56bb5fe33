"""Rows of the stream ``moments`` as they are appended."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .cache_folder import cache_folder
from .moment_rows import Chunk, Progress, StatIndex, Wanted
from .pieces import MemoryPiece, Piece, PieceReading, SealedPiece, complete_steps, found_stats

_MEMORY_ROWS = 1_000_000
_GROUP_ROWS = 200_000


# Rows that do not stay in memory: files in the cache, for as long as this process wants them.
class SpilledRows:
    """Tables that were moved from memory to disk."""

    def __init__(self) -> None:
        self._files: list[Path] = []

    def add(self, table: pa.Table) -> list[Piece]:
        """Write a table to a file of its own, and return its row groups."""
        folder = cache_folder() / "spill"
        folder.mkdir(parents=True, exist_ok=True)
        if not self._files:
            _sweep(folder)
        path = folder / f"{_owner(os.getpid())}{uuid.uuid4().hex}.parquet"
        reading = PieceReading(Wanted({}, ()))
        try:
            pq.write_table(
                table.sort_by("step"),
                path,
                compression="zstd",
                use_dictionary=["step", "samples", "stat", "name", "gradient_stage"],
                row_group_size=_GROUP_ROWS,
            )
            groups = range(-(-table.num_rows // _GROUP_ROWS))
            pieces: list[Piece] = [SealedPiece(path, at, reading) for at in groups]
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            reading.close()
        self._files.append(path)
        return pieces

    def close(self) -> None:
        for path in self._files:
            with contextlib.suppress(OSError):
                path.unlink()
        self._files = []

    def __del__(self) -> None:
        self.close()


def _owner(process: int) -> str:
    return f"{socket.gethostname()}-{process}-"


def _sweep(folder: Path) -> None:
    """Remove the files of dead processes of this machine, where the system can tell without harm."""
    if os.name != "posix":
        return
    host = _owner(0)[:-2]
    for path in folder.glob("*.parquet"):
        machine, _, rest = path.stem.rpartition("-")[0].rpartition("-")
        if f"{machine}-" != host or not rest.isdecimal():
            continue
        try:
            os.kill(int(rest), 0)
        except ProcessLookupError:
            with contextlib.suppress(OSError):
                path.unlink()
        except OSError:
            # Somebody else's, and alive.
            continue


class TableRows:
    """Rows that are appended to. Of many the older ones are spilled to files of the cache."""

    def __init__(self) -> None:
        self._sealed: list[Piece] = []
        self._in_memory: list[MemoryPiece] = []
        self._spilled = SpilledRows()
        self._appended = 0

    @property
    def version(self) -> str:
        return str(self._appended)

    @property
    def samples(self) -> bool:
        return any(piece.samples for piece in self._pieces())

    @property
    def warnings(self) -> list[str]:
        return []

    def append(self, table: pa.Table) -> None:
        if table.num_rows:
            self._in_memory.append(MemoryPiece(table))
        if sum(piece.table.num_rows for piece in self._in_memory) > _MEMORY_ROWS:
            self._sealed += self._spilled.add(pa.concat_tables([piece.table for piece in self._in_memory]))
            self._in_memory = []
        self._appended += 1

    def refresh(self, progress: Progress | None = None) -> bool:
        return False

    def stats(self) -> list[StatIndex]:
        return found_stats(self._pieces())

    def chunks(self, wanted: Wanted) -> Iterator[Chunk]:
        return complete_steps(self._pieces(), wanted)

    def close(self) -> None:
        self._sealed, self._in_memory = [], []
        self._spilled.close()
        self._appended += 1

    def _pieces(self) -> list[Piece]:
        return [*self._sealed, *self._in_memory]
