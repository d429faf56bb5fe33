"""Ranks that can be slow together: those of a node, of a stage, of a group that communicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from .culprits import Culprit
from .spans import Spans

_MOST = 0.75
"""Share of a unit's ranks that are slow where the unit is said to be."""
_MOST_UNITS, _MOST_NAMED = 4_096, 4


@dataclass(frozen=True)
class Unit:
    """Ranks with a name; of several units that explain the same, the first is meant."""

    name: str
    ranks: frozenset[int]


def units_of(spans: Spans) -> list[Unit]:
    """Return nodes (ranks that read one clock), stages and groups, none of all ranks."""
    ranks = spans.ranks
    found: list[Unit] = []
    clock, stage = (column[spans.first_rows] for column in (spans.clock, spans.stage))
    clocks, first = np.unique(clock, return_index=True)
    if (clocks != 0).all():
        # Nodes are numbered as their ranks are.
        for number, each in enumerate(clocks[np.argsort(first)]):
            found.append(Unit(f"node {number}", frozenset(ranks[clock == each].tolist())))
    for each in np.unique(stage[stage >= 0]).tolist():
        found.append(Unit(f"stage {each}", frozenset(ranks[stage == each].tolist())))
    traffic = np.flatnonzero(spans.of_kind("collective"))
    for group in np.unique(spans.group[traffic])[:_MOST_UNITS].tolist():
        found.append(Unit(f"group {spans.groups[group]}", frozenset(spans.members(group))))
    return [each for each in found if 1 < len(each.ranks) < len(ranks)]


def unit_groups(culprits: Sequence[Culprit], units: Sequence[Unit]) -> tuple[list[Culprit], list[Culprit]]:
    """Return what whole units explain, most with least, and the culprits that are left."""
    left = list(culprits)
    groups: list[Culprit] = []
    while True:
        best: tuple[tuple[int, int], Unit, list[Culprit]] | None = None
        single = [
            each
            for each in left
            if each.kind in ("device", "host", "data", "checkpoint") and len(each.ranks) == 1
        ]
        for unit in units:
            inside = [each for each in single if each.ranks[0] in unit.ranks]
            for first in {each.kind: each for each in reversed(inside)}.values():
                mine = [each for each in inside if first.with_(each)]
                explained = (len(mine), -len(unit.ranks))
                if (
                    len(mine) > 1
                    and len(mine) >= _MOST * len(unit.ranks)
                    and (not best or explained > best[0])
                ):
                    best = (explained, unit, mine)
        if best is None:
            return groups, left
        _, unit, mine = best
        count = len(unit.ranks)
        where = unit.name if len(mine) == count else f"{len(mine)} of {count} ranks of {unit.name}"
        groups.append(replace(joined(mine), where=where))
        left = [each for each in left if each not in mine]


def names_of(units: Sequence[Unit], ranks: Sequence[int]) -> str:
    """Return the units of one kind that some ranks are together: ``node 1, node 2``; empty of none."""
    for kind in ("node", "stage", "group"):
        inside = [each for each in units if each.name.startswith(kind) and each.ranks <= {*ranks}]
        if inside and frozenset().union(*(each.ranks for each in inside)) == {*ranks}:
            return ", ".join(each.name for each in inside[:_MOST_NAMED]) if len(inside) <= _MOST_NAMED else ""
    return ""


def joined(culprits: Sequence[Culprit]) -> Culprit:
    """Return several ranks that are slow in the same way as one culprit of which they are the parts."""
    parts = tuple(sorted(culprits, key=lambda each: each.ranks))
    slower = float(np.mean([each.slower for each in parts]))
    half = sqrt(sum(((each.high - each.low) / 2) ** 2 for each in parts)) / len(parts)
    return Culprit(
        parts[0].kind,
        tuple(rank for each in parts for rank in each.ranks),
        min(each.first for each in parts),
        max(each.last for each in parts),
        slower,
        slower - half,
        slower + half,
        min(each.confidence for each in parts),
        parts=parts,
        others=tuple(sorted({rank for each in parts for rank in each.others})),
    )
