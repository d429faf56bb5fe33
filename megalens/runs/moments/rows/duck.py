"""The process's own DuckDB: starting one takes longer than most questions."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from .cache_folder import cache_folder
from .quoted_path import literal

if TYPE_CHECKING:
    import duckdb

__all__ = ["LateCursor", "duck_cursor", "duck_errors"]

_lock = threading.Lock()
_shared: tuple[int, duckdb.DuckDBPyConnection] | None = None


def duck_cursor() -> duckdb.DuckDBPyConnection:
    """Return a connection of its own to one database in memory; what is registered with it, and its temporary tables, are seen by nobody else. The caller closes it."""
    global _shared
    import duckdb

    with _lock:
        # A forked child must not use its parent's threads.
        if _shared is None or _shared[0] != os.getpid():
            connection = duckdb.connect()
            connection.execute("SET preserve_insertion_order = false")
            # What does not fit in memory goes to the cache, not to where the notebook is.
            connection.execute(f"SET temp_directory = {literal(str(cache_folder() / 'spill'))}")
            _shared = (os.getpid(), connection)
        return _shared[1].cursor()


class LateCursor:
    """A connection as :func:`duck_cursor` returns, made when it is first used: most questions are answered without, and loading DuckDB takes 50 MB."""

    def __init__(self) -> None:
        self._cursor: duckdb.DuckDBPyConnection | None = None

    def __call__(self) -> duckdb.DuckDBPyConnection:
        """Return the connection."""
        if self._cursor is None:
            self._cursor = duck_cursor()
        return self._cursor

    def interrupt(self) -> None:
        """End what it is doing, if it is doing anything."""
        if self._cursor is not None:
            # It may have been done this moment.
            with suppress(*duck_errors()):
                self._cursor.interrupt()

    def close(self) -> None:
        """Let go of it."""
        if self._cursor is not None:
            self._cursor.close()


def duck_errors() -> tuple[type[Exception], ...]:
    """Return the errors of DuckDB; none while nobody has loaded it."""
    loaded = sys.modules.get("duckdb")
    return () if loaded is None else (loaded.Error,)
