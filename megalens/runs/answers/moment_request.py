"""Requests for the stream ``moments`` as JSON, and its answers as they are sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import ClientError

if TYPE_CHECKING:
    from ..moments import MomentSource

Groups = tuple[pa.Table, int, int]
"""The table of groups, how many groups there were, and how many steps."""

_MOST_STATS = 6


def only_members(body: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise ``ClientError`` naming a member that a request should not have."""
    unknown = [name for name in body if name not in known]
    if unknown:
        raise _bad(unknown[0][:60], f"The body may hold {', '.join(known)}, got {unknown[0]!r:.60}.")


def moment_rows(body: Mapping[str, Any], most_rows: int) -> Callable[[MomentSource], pa.Table]:
    """Return the function that reads a request's rows; raises ``ClientError`` for a wrong one."""
    only_members(body, ("stats", "where", "first", "last", "limit_rows"))
    stats = body.get("stats")
    if (
        not isinstance(stats, list)
        or not 1 <= len(stats) <= _MOST_STATS
        or not all(isinstance(stat, str) for stat in stats)
    ):
        raise _bad("stats", "stats must be a list of 1 to 6 of them.")
    where = _where(body)
    steps = _number(body, "first"), _number(body, "last")
    asked = _number(body, "limit_rows", 1)
    limit = most_rows if asked is None else min(most_rows, asked)

    def read(source: MomentSource) -> pa.Table:
        return _narrow(source.rows(list(dict.fromkeys(stats)), where, steps, limit), source)

    return read


def moment_groups(body: Mapping[str, Any]) -> Callable[[MomentSource], Groups]:
    """Return the function that merges a request's groups; raises ``ClientError`` for a wrong one."""
    from ..moments import MomentQuery

    by = body.get("by", [])
    # A request names columns; regular expressions and functions are the kernel's.
    if not isinstance(by, list) or len(by) > 12 or not all(isinstance(c, str) and "(" not in c for c in by):
        raise _bad("by", "by must be a list of columns.")
    for name in ("first", "last"):
        _number(body, name)
    if not isinstance(body.get("mixed", False), bool):
        raise _bad("mixed", "mixed must be true or false.")
    query = MomentQuery.of_members({**body, "by": by, "where": _where(body)})

    def read(source: MomentSource) -> Groups:
        found = source.groups(query)
        return _group_columns(found.table, by), found.groups_total, found.steps_total

    return read


def _number(body: Mapping[str, Any], name: str, least: int | None = None) -> int | None:
    value = body.get(name)
    is_integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62
    if value is not None and not (is_integer and (least is None or value >= least)):
        bound = "" if least is None else f" from {least}"
        raise _bad(name, f"{name} must be a whole number{bound}, got {value!r:.50}.")
    return value if is_integer else None


def _where(body: Mapping[str, Any]) -> dict[str, Any] | None:
    where = body.get("where")
    if where is not None and not isinstance(where, dict):
        raise _bad("where", "where must be an object of columns.")
    return where


def _bad(field: str, message: str) -> ClientError:
    return ClientError(message, code="bad-parameter", field=field)


def _narrow(table: pa.Table, source: MomentSource) -> pa.Table:
    """Return rows as they are sent: 64-bit integers as float64, repeated texts as dictionaries."""
    names = pa.array(source.index()["names"], pa.utf8())
    columns: dict[str, Any] = {}
    for field in table.schema:
        column = table.column(field.name)
        if field.name == "name_id":
            columns["name"] = pa.chunked_array(
                [pa.DictionaryArray.from_arrays(chunk, names) for chunk in column.chunks],
                pa.dictionary(pa.int32(), pa.utf8()),
            )
        elif pa.types.is_dictionary(field.type):
            columns[field.name] = column.unify_dictionaries()
        else:
            columns[field.name] = _as_number(field.name, column) if pa.types.is_int64(field.type) else column
    return pa.table(columns)


def _as_number(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers as float64; raises ``unreadable`` for whole ones that no recorder writes."""
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise ClientError(
            f"Could not read the statistics. {name} must be a whole number up to 2^53: {error!s:.200}",
            code="unreadable",
            field=name,
        ) from error


def _doubts(table: pa.Table) -> pa.Array:
    """Return 1 where an unknown loss scale may be in the values, 2 where clipping may be, added up."""
    # What is asked has loaded it; without a question it would only be slow.
    from ..moments.rows.moment_rows import STAGE

    scaled = table.column("scaled").cast(pa.int8()).cast(pa.float64())
    if STAGE not in table.column_names:
        return scaled
    clipped = pc.equal(table.column(STAGE).cast(pa.utf8()), "pre_step").cast(pa.int8()).cast(pa.float64())
    return pc.add(scaled, pc.multiply(clipped, 2.0))


def _group_columns(table: pa.Table, by: list[str]) -> pa.Table:
    """Return groups as they are sent: text keys as dictionaries, each row's group, what a picture needs."""
    keys: dict[str, pa.Array] = {}
    changed = np.zeros(max(0, table.num_rows - 1), bool)
    for label in by:
        column = table.column(label).combine_chunks()
        if pa.types.is_string(column.type):
            column = column.dictionary_encode()
        keys[label] = column
        # Groups follow each other, and no two have the same key.
        codes = pc.fill_null(column.indices if pa.types.is_dictionary(column.type) else column, -1).to_numpy()
        changed |= codes[1:] != codes[:-1]
    group = np.concatenate([np.zeros(min(1, table.num_rows), np.int32), np.cumsum(changed, dtype=np.int32)])
    numbers = {name: _as_number(name, table.column(name)) for name in ("step", "samples", "value", "count")}
    nonfinite = pc.add(table.column("nan_count"), table.column("inf_count"))
    return pa.table(
        {
            **keys,
            "group": pa.array(group, pa.int32()),
            **numbers,
            "nonfinite": nonfinite.cast(pa.float64()),
            "error": table.column("error").cast(pa.float64()),
            "scaled": _doubts(table),
        }
    )
