"""The index of rows, found by asking the rows themselves."""

from __future__ import annotations

from typing import Any

from ....protocol import StatIndex

__all__ = ["stats_of"]


def stats_of(connection: Any, relation: str) -> tuple[list[StatIndex], bool]:
    """Return what there is of each stat, and whether steps are known as samples too, by asking the rows themselves."""
    found: dict[str, list[tuple[str, int, int, int]]] = {}
    samples = -1
    for stat, name, rows, first, last, most in connection.execute(
        f"SELECT stat, name, count(*), min(step), max(step), max(samples) FROM ({relation}) GROUP BY stat, name"
    ).fetchall():
        found.setdefault(stat, []).append((name, rows, first, last))
        samples = max(samples, most)
    steps = dict(
        connection.execute(f"SELECT stat, count(DISTINCT step) FROM ({relation}) GROUP BY stat").fetchall()
    )
    return [
        StatIndex(
            stat,
            sum(entry[1] for entry in entries),
            min(entry[2] for entry in entries),
            max(entry[3] for entry in entries),
            steps[stat],
            sorted(entry[0] for entry in entries),
        )
        for stat, entries in found.items()
    ], samples >= 0
