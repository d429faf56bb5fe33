"""SQL of the rows that take part."""

from __future__ import annotations

from collections.abc import Sequence

from .name_filter import NameFilter

__all__ = ["rows_sql"]


def rows_sql(
    relation: str,
    names: str | None,
    stats: Sequence[str],
    where: NameFilter,
    first: int | None,
    last: int | None,
) -> str:
    """Return the rows of some stats that a filter and bounds of the step leave.

    Parameters
    ----------
    relation : str
        All rows.
    names : str or None
        A table with ``name`` of what takes part and further columns that the rows get; None takes every name.
    stats : sequence of str
        Checked names of stats.
    where : NameFilter
        Of which the ranges of rank and stage are used.
    first, last : int or None
        Inclusive bounds.
    """
    conditions = [f"stat IN ({', '.join(repr(stat) for stat in stats)})" if stats else "false"]
    if first is not None:
        conditions.append(f"step >= {first:d}")
    if last is not None:
        conditions.append(f"step <= {last:d}")
    for column, ranges in where.rows.items():
        within = " OR ".join(f'"{column}" BETWEEN {low:d} AND {high:d}' for low, high in ranges)
        conditions.append(f"({within or 'false'})")
    joined = "" if names is None else f" JOIN {names} USING (name)"
    return f"SELECT * FROM ({relation}){joined} WHERE {' AND '.join(conditions)}"
