"""Choosing of many groups and steps those that a picture needs: the twin of ``src/aggregate/moment-pick.ts``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .query import MomentQuery

__all__ = ["pick"]


def pick(
    connection: Any,
    keys: Sequence[NDArray[np.int64]],
    step: NDArray[np.int64],
    value: NDArray[np.float64],
    shown: NDArray[np.float64],
    bad: NDArray[np.bool_],
    query: MomentQuery,
) -> tuple[NDArray[np.int64], tuple[int, int]]:
    """Return the places of the cells that stay, ordered by group and step, and how many groups and steps there were.

    The groups that stay are those that have values which are not finite or not known, then those of the greatest magnitude. Of each of ``points`` / 4 equal
    stretches of a group's steps the first, last, least and greatest value stay, and every one that is not finite or not known; a group of at most ``points`` steps
    stays as it is.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        Where SQL runs.
    keys : sequence of ndarray
        What tells the group of each cell.
    step, value, shown, bad : ndarray
        Of each cell. Groups are chosen by ``value``, steps by ``shown``; ``bad`` where values are not finite or not known.
    query : MomentQuery
        Of which ``series`` and ``points`` say how many groups and about how many steps may stay.
    """
    names = [f"key{at}" for at in range(len(keys))]
    group = ", ".join(names)
    columns = dict(zip(names, keys, strict=True)) | {"step": step, "value": value, "shown": shown, "bad": bad}
    connection.register("cells", pa.table({**columns, "place": np.arange(len(step))}))
    totals = connection.execute(
        f"SELECT (SELECT count(*) FROM (SELECT DISTINCT {group} FROM cells)), (SELECT count(DISTINCT step) FROM cells)"
    ).fetchall()[0]
    chosen = "cells"
    if query.series is not None or query.points is not None:
        top = _top_sql(group, query.series)
        kept = top if query.points is None else _kept_sql(group, query.points)
        using = group if query.points is None else f"{group}, step"
        chosen = f"(WITH top AS MATERIALIZED ({top}) SELECT * FROM cells SEMI JOIN ({kept}) USING ({using}))"
    places = connection.sql(f"SELECT place FROM {chosen} ORDER BY {group}, step").fetchnumpy()["place"]
    return places, (int(totals[0]), int(totals[1]))


def _top_sql(group: str, series: int | None) -> str:
    limit = "" if series is None else f"ORDER BY size DESC, {group} LIMIT {series:d}"
    return f"""
        SELECT {group}, count(*) AS steps, min(step) AS low, max(step) AS high,
            max(CASE WHEN bad OR isinf(value) THEN 'inf'::DOUBLE WHEN isnan(value) THEN -1 ELSE abs(value) END) AS size
        FROM cells GROUP BY {group} {limit}"""


def _kept_sql(group: str, points: int) -> str:
    spans = max(1, points // 4)
    return f"""
        WITH long AS (
            SELECT {group}, step, shown, bad OR isinf(shown) AS bad,
                least({spans - 1}, floor((step - low) / (CASE WHEN high = low THEN 1 ELSE high - low END / {spans}::DOUBLE)))::INTEGER AS span
            FROM cells JOIN top USING ({group}) WHERE steps > {points:d}),
        ends AS (
            SELECT {group}, unnest([min(step), max(step), arg_min(step, shown) FILTER (isfinite(shown)), arg_max(step, shown) FILTER (isfinite(shown))]) AS step
            FROM long GROUP BY {group}, span)
        SELECT {group}, step FROM ends WHERE step IS NOT NULL
        UNION SELECT {group}, step FROM long WHERE bad
        UNION SELECT {group}, step FROM cells JOIN top USING ({group}) WHERE steps <= {points:d}"""
