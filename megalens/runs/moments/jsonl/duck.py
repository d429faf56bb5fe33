"""The process's own DuckDB: starting one takes longer than most questions."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ....protocol import Ranges
from ..rows.cache_folder import cache_folder
from ..rows.moment_rows import STAGE, STAGES, Chunk, StatIndex, Wanted

if TYPE_CHECKING:
    import duckdb

_lock = threading.Lock()
_shared: tuple[int, duckdb.DuckDBPyConnection] | None = None

_CHUNK_ROWS = 1_000_000
_STAGE_SQL = (
    f"coalesce(list_position({list(STAGES)!r}, {STAGE}::VARCHAR), {len(STAGES)})::TINYINT - 1::TINYINT AS "
    f"{STAGE}"
)


# A path as SQL text.
def quoted_path(path: str | PathLike[str]) -> str:
    """Return a path as a literal that DuckDB reads as this one file, whatever characters it has."""
    plain = re.sub(r"[*?\[]", r"[\g<0>]", fspath(path))
    return literal(plain)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def sql_chunks(connection: Any, relation: str, stats: Sequence[StatIndex], wanted: Wanted) -> Iterator[Chunk]:
    """Read the wanted rows of a relation, a range of steps at a time; nobody else uses the connection
    meanwhile.

    How many ranges there are follows from ``stats``, what there is of each.
    """
    columns = ", ".join(
        ("name_index", "step", *(_STAGE_SQL if name == STAGE else name for name in wanted.columns))
    )
    pieces = []
    for stat, first in wanted.first_indices().items():
        names = wanted.names[stat]
        chosen = f"wanted_{stat}"
        indices = pa.array(range(first, first + len(names)), pa.int32())
        connection.register(chosen, pa.table({"name": pa.array(names, pa.utf8()), "name_index": indices}))
        rows = _rows_sql(relation, chosen, stat, wanted.ranges, wanted.first, wanted.last)
        pieces.append(f"SELECT {columns} FROM ({rows})")
    rows = " UNION ALL ".join(pieces)
    for begin, end in _ranges([one for one in stats if wanted.names.get(one.stat)], wanted):
        table = connection.sql(
            f"SELECT * FROM ({rows}) WHERE step >= {begin:d} AND step < {end:d}"
        ).to_arrow_table()
        if table.num_rows:
            yield {name: table[name].to_numpy() for name in table.column_names}


def _ranges(stats: Sequence[StatIndex], wanted: Wanted) -> Iterator[tuple[int, int]]:
    if not stats:
        return
    first, last = min(one.first for one in stats), max(one.last for one in stats)
    rows = sum(one.rows for one in stats) / (last - first + 1)
    first = first if wanted.first is None else max(first, wanted.first)
    last = last if wanted.last is None else min(last, wanted.last)
    # Steps that are as far apart at the end as at the beginning: of others some chunks are larger.
    steps = max(1, int(_CHUNK_ROWS / rows))
    for begin in range(first, last + 1, steps):
        yield begin, min(begin + steps, last + 1)


def _rows_sql(
    relation: str,
    names: str,
    stat: str,
    ranges: Mapping[str, Ranges],
    first: int | None,
    last: int | None,
) -> str:
    """Return the SQL of a stat's rows in a filter and steps. ``names``: a table of what takes part."""
    conditions = [f"stat = {stat!r}"]
    if first is not None:
        conditions.append(f"step >= {first:d}")
    if last is not None:
        conditions.append(f"step <= {last:d}")
    for column, spans in ranges.items():
        within = " OR ".join(f'"{column}" BETWEEN {low:d} AND {high:d}' for low, high in spans)
        conditions.append(f"({within or 'false'})")
    return f"SELECT * FROM ({relation}) JOIN {names} USING (name) WHERE {' AND '.join(conditions)}"


def duck_cursor() -> duckdb.DuckDBPyConnection:
    """Return a connection to one shared database in memory; the caller closes it.

    Objects registered with it, and its temporary tables, are seen by nobody else.
    """
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


def duck_errors() -> tuple[type[Exception], ...]:
    """Return DuckDB's error classes; none before it was imported."""
    loaded = sys.modules.get("duckdb")
    return () if loaded is None else (loaded.Error,)
