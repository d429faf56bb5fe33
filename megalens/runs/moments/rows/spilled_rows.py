"""Rows that do not stay in memory: files in the cache, for as long as this process wants them."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .cache_folder import cache_folder
from .quoted_path import quoted_path

__all__ = ["SpilledRows"]


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
