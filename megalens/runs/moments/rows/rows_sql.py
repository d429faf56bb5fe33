"""SQL of the rows that take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....protocol import Ranges

__all__ = ["rows_sql"]


def rows_sql(
    relation: str,
    names: str,
    stats: Sequence[str],
    ranges: Mapping[str, Ranges],
    first: int | None,
    last: int | None,
) -> str:
    """Return the rows of some stats that a filter and bounds of the step leave.

    Parameters
    ----------
    relation : str
        All rows.
    names : str
        A table with ``name`` of what takes part and further columns that the rows get.
    stats : sequence of str
        Checked names of stats.
    ranges : mapping
        Ranges of ``rank`` and ``stage``.
    first, last : int or None
        Inclusive bounds.
    """
    conditions = [f"stat IN ({', '.join(repr(stat) for stat in stats)})" if stats else "false"]
    if first is not None:
        conditions.append(f"step >= {first:d}")
    if last is not None:
        conditions.append(f"step <= {last:d}")
    for column, spans in ranges.items():
        within = " OR ".join(f'"{column}" BETWEEN {low:d} AND {high:d}' for low, high in spans)
        conditions.append(f"({within or 'false'})")
    return f"SELECT * FROM ({relation}) JOIN {names} USING (name) WHERE {' AND '.join(conditions)}"
