"""What a step waited for from its end back to its beginning: work of which any less would have made the step shorter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .dependencies import Dependencies
from .spans import COMMUNICATION, Floats, Integers

__all__ = ["PathPiece", "critical_path"]


class PathPiece(NamedTuple):
    """A stretch of the path on one rank. Times as they were given."""

    rank: int
    begin: float
    end: float


def critical_path(found: Dependencies, begin: Floats, end: Floats, steps: Sequence[int]) -> list[PathPiece]:
    """Return the critical paths of some steps, each from its end to its beginning.

    From the rank that ends a step last the path goes back along what it did. Where it waited in a collective or for a message, the path goes on at the rank that came last, or at the sender; the transfer belongs to the rank that is left.

    Parameters
    ----------
    found : Dependencies
    begin, end : numpy.ndarray
        Of each span on one clock, float64 ``[n]``; of communication, when the rank came to wait.
    steps : sequence of int
    """
    spans = found.spans
    whole = np.flatnonzero(spans.of_kind("step") & np.isin(spans.step, list(steps)))
    waits = np.flatnonzero(
        spans.of_kind(*COMMUNICATION)
        & (found.event >= 0)
        & (spans.blocked > 0)
        & ~spans.of_kind("send")
        & np.isin(spans.step, list(steps))
    )
    waits = waits[found.complete[found.event[waits]]]
    waits = waits[np.lexsort((end[waits], spans.rank[waits]))]
    mine = {int(rank): waits[spans.rank[waits] == rank] for rank in np.unique(spans.rank[waits])}
    path: list[PathPiece] = []
    for step in steps:
        rows = whole[spans.step[whole] == step]
        if len(rows):
            path += _back(found, begin, end, rows, mine)
    return path


def _back(
    found: Dependencies, begin: Floats, end: Floats, rows: Integers, waits: dict[int, Integers]
) -> list[PathPiece]:
    spans = found.spans
    start = float(begin[rows].min())
    last = rows[int(end[rows].argmax())]
    rank, until = int(spans.rank[last]), float(end[last])
    path: list[PathPiece] = []
    # Each hop goes back in time, so that there are no more of them than waits.
    while until > start:
        came = _waited(found, begin, end, waits.get(rank, rows[:0]), rank, until, start)
        if came is None:
            path.append(PathPiece(rank, start, until))
            return path
        path.append(PathPiece(rank, came[1], until))
        rank, until = came
    return path


def _waited(
    found: Dependencies, begin: Floats, end: Floats, mine: Integers, rank: int, until: float, start: float
) -> tuple[int, float] | None:
    """Return the rank for which this one waited last before a moment, and when that came; None where it never did."""
    spans = found.spans
    at = int(np.searchsorted(end[mine], until, side="right"))
    while at > 0:
        at -= 1
        row = int(mine[at])
        if end[row] <= start:
            return None
        other = found.last(int(found.event[row]), begin, float(end[row]))
        moment = float(begin[other])
        if int(spans.rank[other]) != rank and begin[row] < moment < until:
            return int(spans.rank[other]), moment
    return None
