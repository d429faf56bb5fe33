"""Rows of the stream ``moments`` as they arrive."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ....protocol import MomentIndex, StatIndex, empty_table
from .cache_folder import cache_folder
from .duck import quoted_path, sql_chunks
from .moment_rows import Chunk, Progress, Wanted

__all__ = ["TableRows"]

_FEW_CHUNKS = 64
_HELD_ROWS = 1_000_000


# Rows that do not stay in memory: files in the cache, for as long as this process wants them.
class SpilledRows:
    """Tables that were put out of memory."""

    def __init__(self) -> None:
        self._files: list[Path] = []

    def add(self, table: pa.Table) -> None:
        """Write a table to a file of its own."""
        folder = cache_folder() / "spill"
        folder.mkdir(parents=True, exist_ok=True)
        if not self._files:
            _sweep(folder)
        path = folder / f"{_owner(os.getpid())}{uuid.uuid4().hex}.parquet"
        try:
            pq.write_table(
                table,
                path,
                compression="zstd",
                use_dictionary=["step", "samples", "stat", "name", "gradient_stage"],
            )
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self._files.append(path)

    def relations(self) -> list[str]:
        """Return SQL for the rows of all files, in pieces to be united."""
        return [f"SELECT * FROM read_parquet({quoted_path(path)})" for path in self._files]

    def close(self) -> None:
        """Remove the files. Safe twice."""
        for path in self._files:
            with contextlib.suppress(OSError):
                path.unlink()
        self._files = []

    def __del__(self) -> None:
        self.close()


def _owner(process: int) -> str:
    return f"{socket.gethostname()}-{process}-"


def _sweep(folder: Path) -> None:
    """Remove the files of processes of this machine that are gone, where the system can say that without harm."""
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
