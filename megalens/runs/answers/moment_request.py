"""Requests for the stream ``moments``, and its answers as they are sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol import MomentGroupsRequest, MomentRowsRequest
from ..errors import ClientError

if TYPE_CHECKING:
    from ..moments import MomentSource

Groups = tuple[pa.Table, int, int]
"""The table of groups, how many groups there were, and how many steps."""


def moment_rows(request: MomentRowsRequest, most_rows: int) -> Callable[[MomentSource], pa.Table]:
    """Return the function that reads a request's rows."""
    stats = list(dict.fromkeys(request["stats"]))
    limit = min(most_rows, request.get("limit_rows", most_rows))

    def read(source: MomentSource) -> pa.Table:
        return _narrow(source.rows(stats, request.get("where"), request.get("steps"), limit), source)

    return read


def moment_groups(request: MomentGroupsRequest) -> Callable[[MomentSource], Groups]:
    """Return the function that merges a request's groups; raises as ``MomentQuery.of_request``."""
    from ..moments import MomentQuery

    query = MomentQuery.of_request(**request, lean=True)

    def read(source: MomentSource) -> Groups:
        found = source.groups(query)
        return _group_columns(found.table, request["by"]), found.groups_total, found.steps_total

    return read


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
    from ..moments.rows.pieces import STAGE

    scaled = table.column("scaled").cast(pa.int8()).cast(pa.float64())
    if STAGE not in table.column_names:
        return scaled
    clipped = pc.equal(table.column(STAGE).cast(pa.utf8()), "pre_step").cast(pa.int8()).cast(pa.float64())
    return pc.add(scaled, pc.multiply(clipped, 2.0))


def _group_columns(table: pa.Table, by: Sequence[str]) -> pa.Table:
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
