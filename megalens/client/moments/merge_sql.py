"""SQL that merges rows into groups: the twin of :func:`megalens.protocol.merge_moments`, held to the same golden cases.

Every function takes the text of a relation with the columns of the stream ``moments`` and whole numbers ``keys`` that say the group, and gives one row for
each group and step.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["QUICK_VALUES", "lean_sql", "merged_sql", "value_sql"]

_NAN, _INF = "'nan'::DOUBLE", "'inf'::DOUBLE"

# greatest() passes over NULL: where there is no data it must not find 0.
QUICK_VALUES = {
    # Sums of positive terms and plain means: no distance from the group's mean is needed, so one pass does.
    "l2": "sqrt(greatest(coalesce(sum(m2 + count * mean * mean) FILTER (count > 0), 'nan'::DOUBLE), 0))",
    "rms": "sqrt(greatest(coalesce(sum(m2 + count * mean * mean) FILTER (count > 0), 'nan'::DOUBLE), 0) / sum(count) FILTER (count > 0))",
    "mean": "sum(count * mean) FILTER (count > 0) / sum(count) FILTER (count > 0)",
    "min": "min(min) FILTER (count > 0)",
    "max": "max(max) FILTER (count > 0)",
    "nonfinite": "sum(nan_count + inf_count)",
}
"""Statistics of a group in one pass, good enough to tell which steps are the extreme ones; what is answered is merged exactly."""


def value_sql(relation: str, keys: Sequence[str], statistic: str) -> str:
    """Return ``keys``, ``step``, ``value`` and ``bad``: whether there are values that are not finite or not known."""
    cell = ", ".join((*keys, "step"))
    return f"""
        SELECT {cell}, coalesce({QUICK_VALUES[statistic]}, {_NAN}) AS value, sum(nan_count + inf_count) <> 0 AS bad
        FROM ({relation}) GROUP BY {cell}"""


def lean_sql(relation: str, keys: Sequence[str], statistic: str) -> str:
    """Return what :func:`merged_sql` does, and ``value`` and ``bad``, in one pass: of the moments only what one of :data:`QUICK_VALUES` is read from.

    What M2 loses here where the mean is large is lost in L2 and RMS again, which are sums of the same positive terms. M3, M4 and their error are left out, extremes
    unless they are asked for.
    """
    cell = ", ".join((*keys, "step"))
    variance = "greatest(m2 / count, 0)"
    low, high = (
        (
            f"CASE WHEN bool_or(isnan({end})) FILTER (count > 0) THEN {_NAN} ELSE coalesce({end}({end}) FILTER (count > 0), {_NAN}) END"
            if end == statistic
            else _NAN
        )
        for end in ("min", "max")
    )
    return f"""
        SELECT {cell}, samples, total AS count, coalesce(first / total, {_NAN}) AS mean, coalesce(greatest(second - first / total * first, 0), 0) AS m2,
            low AS min, high AS max, nan_count, inf_count, m2_error, scaled, value, nan_count + inf_count <> 0 AS bad
        FROM (
            SELECT {cell}, max(samples) AS samples, coalesce(sum(count) FILTER (count > 0), 0) AS total,
                sum(count * mean) FILTER (count > 0) AS first, sum(m2 + count * mean * mean) FILTER (count > 0) AS second,
                {low} AS low, {high} AS high, sum(nan_count) AS nan_count, sum(inf_count) AS inf_count,
                coalesce(sum(3 * rounding * count * ({variance} + mean * mean)) FILTER (count > 0 AND rounding > 0), 0) AS m2_error,
                coalesce(bool_or(isnan(loss_scale)), false) AS scaled, coalesce({QUICK_VALUES[statistic]}, {_NAN}) AS value
            FROM ({relation}) GROUP BY {cell})"""


def merged_sql(relation: str, keys: Sequence[str], *, keep: bool) -> str:
    """Return ``keys``, ``step``, ``samples``, the merged moments with their errors and ``scaled`` (whether a loss scale that is not known may be in them).

    The moments about the group's mean need that mean first, so there are two passes over the rows. NaN is greater than all else in SQL, and equal to itself: what
    numpy does of its own accord is spelled out here.

    Parameters
    ----------
    relation : str
        The rows.
    keys : sequence of str
        Columns of the group, without NULL.
    keep : bool
        Hold the rows in memory between the passes instead of reading them twice.
    """
    cell = ", ".join((*keys, "step"))
    same = " AND ".join(f"r.{key} = middle.{key}" for key in (*keys, "step"))
    out = ", ".join(f"middle.{key}" for key in (*keys, "step"))
    variance = "greatest(m2 / count, 0)"
    return f"""
        WITH r AS {"" if keep else "NOT"} MATERIALIZED ({relation}),
        middle AS (
            SELECT {cell}, max(samples) AS samples, coalesce(sum(count) FILTER (count > 0), 0) AS total,
                sum(count * mean) FILTER (count > 0) / total AS mean,
                CASE WHEN bool_or(isnan(min)) FILTER (count > 0) THEN {_NAN} ELSE min(min) FILTER (count > 0) END AS low,
                CASE WHEN bool_or(isnan(max)) FILTER (count > 0) THEN {_NAN} ELSE max(max) FILTER (count > 0) END AS high,
                sum(nan_count) AS nan_count, sum(inf_count) AS inf_count,
                coalesce(sum(3 * rounding * count * ({variance} + mean * mean)) FILTER (count > 0 AND rounding > 0), 0) AS m2_error,
                coalesce(sum(rounding * count * ({variance} * {variance} + 14 * mean * mean * mean * mean))
                    FILTER (count > 0 AND rounding > 0), 0) AS m4_error,
                coalesce(bool_or(isnan(loss_scale)), false) AS scaled
            FROM r GROUP BY {cell}),
        far AS (
            SELECT r.*, CASE WHEN r.mean = middle.mean AND NOT isnan(r.mean) THEN 0 ELSE r.mean - middle.mean END AS d
            FROM r JOIN middle ON {same} WHERE r.count > 0),
        about AS (
            SELECT {cell}, sum(m2 + count * d * d) AS m2, sum(m3 + 3 * d * m2 + count * d * d * d) AS m3,
                sum(m4 + 4 * d * m3 + 6 * d * d * m2 + count * d * d * d * d) AS m4
            FROM far GROUP BY {cell})
        SELECT {out}, samples, total AS count, coalesce(middle.mean, {_NAN}) AS mean,
            coalesce(r.m2, 0) AS m2, coalesce(r.m3, 0) AS m3, coalesce(r.m4, 0) AS m4,
            CASE WHEN low IS NULL OR low = {_INF} THEN {_NAN} ELSE low END AS min,
            CASE WHEN high IS NULL OR high = -{_INF} THEN {_NAN} ELSE high END AS max,
            nan_count, inf_count, m2_error, m4_error, scaled
        FROM middle LEFT JOIN about r ON {same}"""
