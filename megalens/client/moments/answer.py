"""From a question to merged groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol import parse_name
from ..errors import ClientError
from .grouping import Key, key_order
from .merge_sql import QUICK_VALUES, lean_sql, merged_sql, value_sql
from .name_table import module_of
from .pick_sql import kept_sql, top_sql
from .query import MomentQuery
from .readings import reading_error, reading_value
from .rows import StatIndex
from .selection import rows_sql

__all__ = ["MERGED", "MomentGroups", "answer_groups"]

MERGED = ("count", "mean", "m2", "m3", "m4", "min", "max", "nan_count", "inf_count", "m2_error", "m4_error")
"""Columns of merged moments."""

# Up to so many rows are merged at once and held between the passes; of more a first pass tells which groups and steps are needed.
_AT_ONCE = 400_000
_WHOLE = ("layer", "expert", "rank", "stage")


@dataclass(frozen=True)
class MomentGroups:
    """Merged groups.

    Attributes
    ----------
    table : pyarrow.Table
        The columns of the group's key (null where a name does not have it), ``step``, ``samples``, ``value``, the merged moments with their errors, ``error`` (how far the value
        may be off by the rounding of raw sums, in its own unit) and ``scaled`` (whether a loss scale that is not known may be in it). Ordered by group, then step.
    keys : list of tuple
        Keys of the groups that stayed, in order.
    groups_total, steps_total : int
        How many there were before the largest groups were chosen and steps were left out.
    """

    table: pa.Table
    keys: list[Key]
    groups_total: int
    steps_total: int


@dataclass(frozen=True)
class _Side:
    """Rows that are grouped: of one stat, by the code of each name; of a ratio there are two."""

    stat: str
    names: list[str]
    pairs: list[str]
    keys: list[Key]
    whole: bool


def answer_groups(
    connection: Any, relation: str, stats: Mapping[str, StatIndex], query: MomentQuery
) -> MomentGroups:
    """Merge the rows of ``relation`` as ``query`` asks.

    Raises
    ------
    ClientError
        ``mixed`` when a group would hold both inputs and outputs of modules.
    """
    sides = _sides(stats, query)
    order = sorted({key for side in sides for key in side.keys}, key=key_order)
    codes = {key: code for code, key in enumerate(order)}
    keys = ("code", *query.grouping.rows)
    relations = []
    for place, side in enumerate(sides):
        chosen = None
        if not (side.whole and len(order) == 1 and len(sides) == 1):
            chosen = f"side{place}"
            connection.register(
                chosen,
                pa.table(
                    {
                        "name": pa.array(side.names, pa.utf8()),
                        "pair": pa.array(side.pairs, pa.utf8()),
                        "code": pa.array([codes[key] for key in side.keys], pa.int32()),
                    }
                ),
            )
        rows = rows_sql(relation, chosen, [side.stat], query.where, query.first, query.last)
        relations.append(_with_keys(rows, query.grouping.rows, named=chosen is not None))
    if len(sides) == 2:
        relations = [
            f"SELECT * FROM ({one}) SEMI JOIN (SELECT DISTINCT pair, step FROM ({other})) USING (pair, step)"
            for one, other in zip(relations, relations[::-1], strict=True)
        ]
    many = sum(stats[side.stat].rows for side in sides if side.stat in stats) > _AT_ONCE
    tables, totals = _merge(connection, relations, keys, query, many=many)
    return _shape(tables, keys, order, totals, query)


def _sides(stats: Mapping[str, StatIndex], query: MomentQuery) -> list[_Side]:
    if query.ratio == "grad_to_param":
        return [_side(stats, query, "grad", None), _side(stats, query, "param", None)]
    if query.ratio == "gain":
        roles = ("input", "output") if query.stat == "dgrad" else ("output", "input")
        return [_side(stats, query, query.stat, role) for role in roles]
    return [_side(stats, query, query.stat, None)]


def _side(stats: Mapping[str, StatIndex], query: MomentQuery, stat: str, role: str | None) -> _Side:
    """Code the names of one side by the columns of the query. ``role``: take names of this role only, and modules' names for theirs."""
    names = stats[stat].names if stat in stats else []
    all_names = len(names)
    if role is not None:
        names = [name for name in names if parse_name(name).role == role]
    texts = names if role is None else [module_of(name) for name in names]
    kept = query.where.keep(texts, any_role=role is not None)
    keys = query.grouping.keys(texts)
    taken = [at for at, keep in enumerate(kept) if keep and keys[at] is not None]
    side = _Side(
        stat,
        [names[at] for at in taken],
        [texts[at] for at in taken],
        [keys[at] for at in taken],  # type: ignore[misc]
        len(taken) == all_names,
    )
    if role is None and stat in ("activation", "dgrad") and not query.mixed:
        _refuse_mixed(side)
    return side


def _refuse_mixed(side: _Side) -> None:
    roles: dict[Key, set[str]] = {}
    for name, key in zip(side.names, side.keys, strict=True):
        role = parse_name(name).role
        if role is not None:
            roles.setdefault(key, set()).add(role)
    for key, found in roles.items():
        if len(found) > 1:
            said = " · ".join("none" if value is None else str(value) for value in key)
            which = f"The group {said}" if key else "The total"
            raise ClientError(
                f"{which} would hold both inputs and outputs of modules, in which the same values count twice. "
                'Choose one with where={"role": "output"}, group by role, or allow it with mixed=True.',
                code="mixed",
                field="mixed",
            )


def _with_keys(rows: str, columns: Sequence[str], *, named: bool) -> str:
    replaced = ", ".join(f"greatest({column}, -1) AS {column}" for column in columns)
    star = f"* REPLACE ({replaced})" if replaced else "*"
    return f"SELECT {star}{'' if named else ', 0 AS code'} FROM ({rows})"


def _merge(
    connection: Any, relations: list[str], keys: Sequence[str], query: MomentQuery, *, many: bool
) -> tuple[list[pa.Table], tuple[int, int]]:
    """Return the merged cells of each side that stay, and how many groups and steps there were."""
    cell = ", ".join((*keys, "step"))
    quick = many and query.statistic in QUICK_VALUES and (query.points or query.series)
    lean = many and query.statistic in QUICK_VALUES and query.lean
    if lean:
        for place, rows in enumerate(relations):
            connection.execute(f"CREATE TEMP TABLE values{place} AS {lean_sql(rows, keys, query.statistic)}")
    elif not quick:
        for place, rows in enumerate(relations):
            connection.execute(f"CREATE TEMP TABLE cells{place} AS {merged_sql(rows, keys, keep=not many)}")
            _add_values(connection, f"cells{place}", keys, query.statistic)
    else:
        for place, rows in enumerate(relations):
            connection.execute(f"CREATE TEMP TABLE values{place} AS {value_sql(rows, keys, query.statistic)}")
    values = "values0"
    if len(relations) == 2:
        values = "quotients"
        connection.execute(
            f"CREATE TEMP TABLE quotients AS SELECT {cell}, a.value / b.value AS value, a.bad OR b.bad AS bad "
            f"FROM values0 a JOIN values1 b USING ({cell})"
        )
    groups = ", ".join(keys)
    totals = connection.execute(
        f"SELECT (SELECT count(*) FROM (SELECT DISTINCT {groups} FROM {values})), (SELECT count(DISTINCT step) FROM {values})"
    ).fetchall()[0]
    kept = values
    if query.series is not None or query.points is not None:
        kept = "kept"
        connection.execute(f"CREATE TEMP TABLE top AS {top_sql(values, keys, query.series)}")
        points = query.points if query.points is not None else 1 << 62
        connection.execute(f"CREATE TEMP TABLE kept AS {kept_sql(values, 'top', keys, points)}")
    tables = []
    for place, rows in enumerate(relations):
        cells = f"SELECT * FROM cells{place} SEMI JOIN {kept} USING ({cell})"
        if lean:
            none = "'nan'::DOUBLE"
            cells = f"SELECT *, {none} AS m3, {none} AS m4, 0::DOUBLE AS m4_error FROM values{place} v SEMI JOIN {kept} k USING ({cell})"
        elif quick:
            some = f"SELECT * FROM ({rows}) SEMI JOIN {kept} USING ({cell})"
            cells = merged_sql(some, keys, keep=True)
        tables.append(connection.sql(f"SELECT * FROM ({cells}) ORDER BY {cell}").to_arrow_table())
    return tables, (int(totals[0]), int(totals[1]))


def _add_values(connection: Any, cells: str, keys: Sequence[str], statistic: str) -> None:
    """Make the table of values that groups and steps are chosen by, of cells that are merged already."""
    cell = ", ".join((*keys, "step"))
    table = connection.sql(f"SELECT {cell}, {', '.join(MERGED)} FROM {cells}").to_arrow_table()
    merged = {name: table[name].to_numpy() for name in MERGED}
    value = reading_value(merged, statistic)
    bad = (merged["nan_count"] + merged["inf_count"]) != 0
    chosen = (
        table.select([*keys, "step"])
        .append_column("value", pa.array(value))
        .append_column("bad", pa.array(bad))
    )
    connection.register(cells.replace("cells", "values"), chosen)


def _shape(
    tables: list[pa.Table],
    keys: Sequence[str],
    order: list[Key],
    totals: tuple[int, int],
    query: MomentQuery,
) -> MomentGroups:
    table = tables[0]
    merged = [{name: side[name].to_numpy() for name in MERGED} for side in tables]
    value = reading_value(merged[0], query.statistic)
    error = reading_error(merged[0], query.statistic)
    scaled = table["scaled"].to_numpy()
    if len(tables) == 2:
        below = reading_value(merged[1], query.statistic)
        with np.errstate(all="ignore"):
            shares = _share(error, value) + _share(reading_error(merged[1], query.statistic), below)
            value = value / below
            error = np.where(shares > 0, np.abs(value) * shares, 0)
        scaled = scaled | tables[1]["scaled"].to_numpy()
        for name in ("nan_count", "inf_count"):
            merged[0][name] = merged[0][name] + merged[1][name]
    codes = [table[key].to_numpy() for key in keys]
    starts = _starts(codes)
    found = [
        query.grouping.with_row_values(
            order[codes[0][at]],
            {column: int(values[at]) for column, values in zip(keys[1:], codes[1:], strict=True)},
        )
        for at in starts
    ]
    # Numbers of ranks that are not known come first in SQL and last in an answer.
    places = sorted(range(len(found)), key=lambda place: key_order(found[place]))
    lengths = np.diff([*starts, table.num_rows])
    rows = (
        np.concatenate([np.arange(starts[place], starts[place] + lengths[place]) for place in places])
        if places
        else np.zeros(0, np.int64)
    )
    group = np.repeat(np.arange(len(places)), [lengths[place] for place in places]) if places else rows
    ordered = [found[place] for place in places]
    columns: dict[str, Any] = {
        label: _key_column(label, [key[at] for key in ordered], group)
        for at, label in enumerate(query.grouping.labels)
    }
    for name in ("step", "samples"):
        columns[name] = table[name].to_numpy()[rows]
    columns["value"] = value[rows]
    columns |= {name: merged[0][name][rows] for name in MERGED}
    columns |= {"error": error[rows], "scaled": scaled[rows]}
    return MomentGroups(pa.table(columns), ordered, *totals)


def _share(error: NDArray[np.float64], value: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(error == 0, 0, error / np.abs(value))


def _starts(codes: list[NDArray[Any]]) -> NDArray[np.int64]:
    if not len(codes[0]):
        return np.zeros(0, np.int64)
    changed = np.zeros(len(codes[0]), bool)
    changed[0] = True
    for column in codes:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _key_column(label: str, values: list[Any], group: NDArray[Any]) -> pa.Array:
    whole = all(
        isinstance(value, int) and not isinstance(value, bool) for value in values if value is not None
    )
    known = [value for value in values if value is not None]
    if whole and (known or label in _WHOLE):
        column = pa.array(values, pa.int64())
    elif all(isinstance(value, str) for value in known):
        column = pa.array(values, pa.utf8())
    else:
        column = pa.array([None if value is None else str(value) for value in values], pa.utf8())
    return column.take(pa.array(group))
