"""Chunks of rows that DuckDB reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ....protocol import StatIndex
from .rows_sql import rows_sql
from .stages import STAGE, STAGES
from .wanted import Chunk, Wanted

__all__ = ["sql_chunks"]

_CHUNK_ROWS = 1_000_000
_STAGE_SQL = f"coalesce(list_position({list(STAGES)!r}, {STAGE}::VARCHAR), {len(STAGES)})::TINYINT - 1::TINYINT AS {STAGE}"


def sql_chunks(connection: Any, relation: str, stats: Sequence[StatIndex], wanted: Wanted) -> Iterator[Chunk]:
    """Read rows a range of steps at a time.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        The only user of it until the last chunk came.
    relation : str
        All rows.
    stats : sequence of StatIndex
        What there is: how many ranges there are follows from it.
    wanted : Wanted
        What is asked for.
    """
    columns = ", ".join(
        ("place", "step", *(_STAGE_SQL if name == STAGE else name for name in wanted.columns))
    )
    pieces = []
    for stat, first in wanted.first_places().items():
        names = wanted.names[stat]
        chosen = f"wanted_{stat}"
        places = pa.array(range(first, first + len(names)), pa.int32())
        connection.register(chosen, pa.table({"name": pa.array(names, pa.utf8()), "place": places}))
        rows = rows_sql(relation, chosen, [stat], wanted.ranges, wanted.first, wanted.last)
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
