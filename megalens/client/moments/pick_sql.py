"""SQL that chooses of many groups and steps those that a picture needs: the twin of ``src/aggregate/moment-pick.ts``."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["kept_sql", "top_sql"]


def top_sql(values: str, keys: Sequence[str], series: int | None) -> str:
    """Return the groups that stay, with ``steps``, ``low`` and ``high``: those that have values which are not finite or not known, then those of the greatest magnitude.

    Parameters
    ----------
    values : str
        Name of a table with ``keys``, ``step``, ``value`` and ``bad``.
    keys : sequence of str
        Columns of the group.
    series : int or None
        How many may stay.
    """
    cell = ", ".join(keys)
    limit = "" if series is None else f"ORDER BY size DESC, {cell} LIMIT {series:d}"
    return f"""
        SELECT {cell}, count(*) AS steps, min(step) AS low, max(step) AS high,
            max(CASE WHEN bad OR isinf(value) THEN 'inf'::DOUBLE WHEN isnan(value) THEN -1 ELSE abs(value) END) AS size
        FROM {values} GROUP BY {cell} {limit}"""


def kept_sql(values: str, top: str, keys: Sequence[str], points: int) -> str:
    """Return ``keys`` and ``step`` of what stays: of each of ``points`` / 4 equal stretches of a group's steps the first, last, least and greatest value, and every one
    that is not finite or not known. A group of at most ``points`` steps stays as it is.
    """
    cell = ", ".join(keys)
    spans = max(1, points // 4)
    return f"""
        WITH long AS (
            SELECT {cell}, step, value, bad OR isinf(value) AS bad,
                least({spans - 1}, floor((step - low) / (CASE WHEN high = low THEN 1 ELSE high - low END / {spans}::DOUBLE)))::INTEGER AS span
            FROM {values} JOIN {top} USING ({cell}) WHERE steps > {points:d}),
        ends AS (
            SELECT {cell}, unnest([min(step), max(step), arg_min(step, value) FILTER (isfinite(value)), arg_max(step, value) FILTER (isfinite(value))]) AS step
            FROM long GROUP BY {cell}, span)
        SELECT {cell}, step FROM ends WHERE step IS NOT NULL
        UNION SELECT {cell}, step FROM long WHERE bad
        UNION SELECT {cell}, step FROM {values} JOIN {top} USING ({cell}) WHERE steps <= {points:d}"""
