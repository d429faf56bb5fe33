"""A timeline as a picture needs it: spans on one clock, short ones summed by pixel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .analysis import Analysis
from .dependencies import Dependencies
from .spans import COMMUNICATION, KINDS, Bools, Floats, Integers

MOST_LANES = 64
MOST_PIECES = 24_000
_PHASE, _INSIDE, _BLOCKED = range(3)
"""Drawing order: phases, layers and operations in them, and moments in which the rank is blocked."""


# What a step waited for from its end back to its beginning: work of which any less would have made the step
# shorter.
class PathPiece(NamedTuple):
    """A part of the path on one rank. Times as they were given."""

    rank: int
    begin: float
    end: float


def critical_path(found: Dependencies, begin: Floats, end: Floats, steps: Sequence[int]) -> list[PathPiece]:
    """Return the critical paths of some steps, each from its end to its beginning.

    From the rank that ends a step last the path goes back along what it did. Where it waited in a collective
    or for a message, the path goes on at the rank that came last, or at the sender; the transfer belongs to
    the rank that is left.

    Parameters
    ----------
    found : Dependencies
    begin, end : numpy.ndarray
        Of each span on one clock, float64 ``[n]``; of communication, when the rank came to wait.
    steps : sequence of int
    """
    spans = found.spans
    step_rows = np.flatnonzero(spans.of_kind("step") & np.isin(spans.step, list(steps)))
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
        rows = step_rows[spans.step[step_rows] == step]
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
    """Return the rank for which this one waited last before a moment, and its arrival; None if for none."""
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


_LEAST_SEEN = 0.3
"""The least share of a pixel of a sum."""
_WAITING = 0.5
"""Blocked time is shown from this share of the other work in a pixel on."""
_TELLING = 10
"""A span so many times as long as is usual for its depth gives its pixel its kind."""
_MOST_FOUND = 200
_MOST_SUMS = 200
_MOST_PATHS = 30
"""Most steps whose critical path is drawn: of more it would be invisible."""
_MS = 1e-6


def lanes_of(
    analysis: Analysis, ranks: Sequence[int], window: tuple[float, float] | None, columns: int
) -> dict[str, Any]:
    """Return the lanes of some ranks (at most ``MOST_LANES``, in this order) as plain JSON, ms since the
    first step began.

    A span that fills at least one of ``columns`` pixels stays. The shorter ones of a pixel become one piece
    of the kind that takes most of it; waiting stays where it takes half as much as another kind. ``window``
    is in ms; None is everything.
    """
    spans = analysis.spans
    begin, end = _drawn_times(analysis)
    everything = (0.0, float(end.max(initial=1.0)))
    shown = window if window is not None else everything
    columns = max(50, min(columns, MOST_PIECES // max(len(ranks), 1)))
    lane_of = {rank: lane for lane, rank in enumerate(ranks)}
    lane = np.array([lane_of.get(int(rank), -1) for rank in spans.ranks])[
        np.searchsorted(spans.ranks, spans.rank)
    ]
    rows = _drawn_rows(analysis, ranks, begin, end, shown)
    traffic = spans.of_kind(*COMMUNICATION)[rows]
    depth = np.select([traffic, ~spans.complete_phases[rows]], [_BLOCKED, _INSIDE], _PHASE)
    drawn = {"lane": lane[rows], "depth": depth, "kind": spans.kind[rows], "row": rows}
    pieces = _pieces({**drawn, "begin": begin[rows], "end": end[rows]}, shown, columns)
    own = pieces["row"]
    known = own >= 0
    texts: dict[str, list[str]] = {}
    for name, codes, words in (("name", spans.name, spans.names), ("group", spans.group, spans.groups)):
        texts[name] = [
            words[code] if there else ""
            for code, there in zip(codes[own].tolist(), known.tolist(), strict=True)
        ]
    numbers = {
        name: np.where(known, getattr(spans, name)[own], -1).tolist()
        for name in ("step", "micro_batch", "chunk", "bytes", "peer")
    }
    return {
        "lanes": _lanes(analysis, ranks),
        "window": list(shown),
        "whole": list(everything),
        "steps": _steps(analysis, begin, end, shown),
        "kinds": list(KINDS),
        "pieces": {
            **{name: pieces[name].tolist() for name in ("lane", "depth", "kind", "count", "row")},
            **{name: np.round(pieces[name], 6).tolist() for name in ("begin", "end")},
            **texts,
            **numbers,
        },
    }


def sums_of(analysis: Analysis, ranks: Sequence[int], window: tuple[float, float]) -> list[dict[str, Any]]:
    """Return how many spans of each name lie in a window on some ranks and the ms that they take within it,
    ``{kind, name, count, total}``, the largest total first.
    """
    spans = analysis.spans
    begin, end = _drawn_times(analysis)
    rows = _drawn_rows(analysis, ranks, begin, end, window)
    took = np.minimum(end[rows], window[1]) - np.maximum(begin[rows], window[0])
    keys, which = np.unique(spans.kind[rows] * len(spans.names) + spans.name[rows], return_inverse=True)
    count = np.bincount(which, minlength=len(keys))
    total = np.bincount(which, took, len(keys))
    return [
        {
            "kind": KINDS[int(keys[at]) // len(spans.names)],
            "name": spans.names[int(keys[at]) % len(spans.names)],
            "count": int(count[at]),
            "total": float(total[at]),
        }
        for at in np.argsort(-total, kind="stable")[:_MOST_SUMS]
    ]


def links_of(analysis: Analysis, row: int) -> list[dict[str, Any]]:
    """Return the other ends of a span's message or collective with its own, ``{rank, at, other, other_at}``,
    ms.

    From the rank that came last, or the sender, to each of those that waited for it.
    """
    found, spans = analysis.dependencies, analysis.spans
    event = int(found.event[row]) if 0 <= row < len(spans) else -1
    if event < 0 or not found.complete[event]:
        return []
    begin, end = _times(analysis)
    begin = begin + (spans.arrival - spans.start) * _MS
    members = found.of(event)
    last = found.last(event, begin, float("inf"))
    waited = found.waited(members, begin[members], end[members])
    pairs = [(last, each) for each in members[waited] if each != last]
    return [
        {
            "rank": int(spans.rank[one]),
            "at": float(begin[one]),
            "other": int(spans.rank[two]),
            "other_at": float(end[two]),
        }
        for one, two in pairs
    ]


def path_of(analysis: Analysis, window: tuple[float, float] | None) -> list[dict[str, Any]]:
    """Return the critical path of at most 30 steps in a window as ``{rank, begin, end}``, backwards, ms."""
    begin, end = _times(analysis)
    shown = window if window is not None else (0.0, float(end.max(initial=1.0)))
    steps = [int(step) for step, *_ in _steps(analysis, begin, end, shown)]
    if len(steps) > _MOST_PATHS:
        return []
    spans = analysis.spans
    came = np.where(spans.of_kind(*COMMUNICATION), end - spans.blocked * _MS, begin)
    return [each._asdict() for each in critical_path(analysis.dependencies, came, end, steps)]


def found_of(analysis: Analysis, ranks: Sequence[int], text: str, since: int = 0) -> dict[str, Any]:
    """Return the number of spans with a text in name or kind, and 200 of them by time, ms, from number
    ``since`` on; case is ignored.
    """
    spans, wanted = analysis.spans, text.lower()
    name = np.array([wanted in each.lower() for each in spans.names] or [False])
    kind = np.array([wanted in each for each in KINDS])
    rows = np.flatnonzero((name[spans.name] | kind[spans.kind]) & np.isin(spans.rank, list(ranks)))
    begin, end = _times(analysis)
    first = rows[np.argsort(begin[rows], kind="stable")[since : since + _MOST_FOUND]]
    return {
        "count": len(rows),
        "since": since,
        "first": [
            {
                "rank": int(spans.rank[row]),
                "step": int(spans.step[row]),
                "begin": float(begin[row]),
                "end": float(end[row]),
            }
            for row in first
        ],
    }


def shown_ms(analysis: Analysis, rank: Integers, time: Integers) -> Floats:
    """Return times of ranks that have spans, ms since the first of the ranks that share a clock."""
    spans, clocks = analysis.spans, analysis.clocks
    begin = clocks.aligned(spans.rank, spans.start)
    shown = clocks.aligned(rank, time)
    whose = clocks.component[np.searchsorted(clocks.ranks, spans.rank)]
    asked = clocks.component[np.searchsorted(clocks.ranks, rank)]
    for each in np.unique(asked):
        mine = whose == each
        inside = mine & spans.of_kind("step")
        shown[asked == each] -= begin[inside if inside.any() else mine].min()
    return (shown * _MS).astype(float)


def _times(analysis: Analysis) -> tuple[Floats, Floats]:
    """Return beginning and end of each span, as :func:`shown_ms`."""
    spans = analysis.spans
    return shown_ms(analysis, spans.rank, spans.start), shown_ms(analysis, spans.rank, spans.end)


def _drawn_times(analysis: Analysis) -> tuple[Floats, Floats]:
    """Return :func:`_times`, of communication the part in which its rank is blocked."""
    spans = analysis.spans
    begin, end = _times(analysis)
    return np.where(spans.of_kind(*COMMUNICATION), end - spans.blocked * _MS, begin), end


def _drawn_rows(
    analysis: Analysis, ranks: Sequence[int], begin: Floats, end: Floats, shown: tuple[float, float]
) -> Integers:
    """Return which spans of some ranks are drawn in a window."""
    spans = analysis.spans
    seen = np.isin(spans.rank, list(ranks)) & ~spans.of_kind("step") & (spans.count == 1)
    seen &= (end > shown[0]) & (begin < shown[1])
    return np.flatnonzero(seen & (~spans.of_kind(*COMMUNICATION) | (spans.blocked > 0)))


def _lanes(analysis: Analysis, ranks: Sequence[int]) -> list[dict[str, Any]]:
    clocks, spans = analysis.clocks, analysis.spans
    indices = np.searchsorted(clocks.ranks, ranks)
    stage = spans.stage[np.searchsorted(spans.rank, ranks)]
    return [
        {
            "rank": int(rank),
            "stage": int(stage[at]),
            "half_width": float(clocks.half_width_ns[index]) * _MS,
            "reference": int(clocks.component[index]),
        }
        for at, (rank, index) in enumerate(zip(ranks, indices, strict=True))
    ]


def _steps(analysis: Analysis, begin: Floats, end: Floats, shown: tuple[float, float]) -> list[list[float]]:
    """Return number, beginning and end of each step in the window."""
    spans = analysis.spans
    rows = np.flatnonzero(spans.of_kind("step"))
    result = []
    for step in np.unique(spans.step[rows]).tolist():
        mine = rows[spans.step[rows] == step]
        first, last = float(begin[mine].min()), float(end[mine].max())
        if last > shown[0] and first < shown[1]:
            result.append([step, round(first, 6), round(last, 6)])
    return result


def _pieces(drawn: Mapping[str, Any], shown: tuple[float, float], columns: int) -> dict[str, Any]:
    """Return columns of the drawn spans (lane, depth, kind, row, begin, end), the short ones summed."""
    pixel = (shown[1] - shown[0]) / columns
    long = drawn["end"] - drawn["begin"] >= pixel
    exact = {name: column[long] for name, column in drawn.items()}
    exact["count"] = np.ones(int(long.sum()), np.int64)
    sums = _sums({name: column[~long] for name, column in drawn.items()}, shown[0], pixel, columns)
    joined = {name: np.concatenate([sums[name], exact[name]]) for name in exact}
    # Deeper spans are drawn later, on top.
    order = np.lexsort((joined["begin"], joined["lane"], joined["depth"]))
    return {name: column[order] for name, column in joined.items()}


def _sums(drawn: Mapping[str, Any], zero: float, pixel: float, columns: int) -> dict[str, Any]:
    """Return the short spans of each lane and pixel as a piece of the main kind, equal neighbours joined.

    A span far longer than is usual is seen: its pixel is full of its kind.
    """
    lane, depth, kind = drawn["lane"], drawn["depth"], drawn["kind"]
    begin, end = drawn["begin"], drawn["end"]
    column = np.clip(((begin + end) / 2 - zero) / pixel, 0, columns - 1).astype(np.int64)
    # Phases and what is in them are one row of pixels, blocked moments another.
    blocked = (depth == _BLOCKED).astype(np.int64)
    cell = (lane * 2 + blocked) * columns + column
    cells, which = np.unique(cell, return_inverse=True)
    inside = depth == _INSIDE
    time = np.bincount(which[~inside], (end - begin)[~inside], len(cells)).astype(float)
    time = np.where(time > 0, time, np.bincount(which[inside], (end - begin)[inside], len(cells)))
    count = np.bincount(which, minlength=len(cells))
    of_kind = np.zeros((len(KINDS), len(cells)))
    np.add.at(of_kind, (kind, which), end - begin)
    strongest = of_kind.argmax(axis=0)
    long = _telling(depth, end - begin)
    telling = np.zeros(len(cells), bool)
    telling[which[long]] = True
    order = long[np.argsort((end - begin)[long], kind="stable")]
    strongest[which[order]] = kind[order]
    at, row = cells % columns, cells // columns
    shown = _shown(row, at, time) | telling
    at, row, strongest, time, count, telling = (
        each[shown] for each in (at, row, strongest, time, count, telling)
    )
    # Neighbouring, nearly full pixels of one kind are one piece.
    full = np.where(telling, pixel, np.minimum(np.maximum(time, _LEAST_SEEN * pixel), pixel))
    joins = np.zeros(len(at), bool)
    joins[1:] = (row[1:] == row[:-1]) & (at[1:] == at[:-1] + 1) & (strongest[1:] == strongest[:-1])
    joins[1:] &= (full[1:] > 0.7 * pixel) & (full[:-1] > 0.7 * pixel)
    first = np.flatnonzero(~joins)
    last = np.append(first[1:], len(at)) - 1 if len(first) else first
    return {
        "lane": row[first] // 2,
        "depth": np.where(row[first] % 2 == 1, _BLOCKED, _PHASE),
        "kind": strongest[first],
        "begin": zero + at[first] * pixel,
        "end": zero + at[last] * pixel + full[last] if len(first) else np.zeros(0),
        "count": np.add.reduceat(count, first) if len(first) else np.zeros(0, np.int64),
        "row": np.full(len(first), -1),
    }


def _telling(depth: Integers, length: Floats) -> Integers:
    """Return which spans are far longer than is usual for their depth."""
    usual = np.full(3, np.inf)
    for each in np.unique(depth):
        usual[each] = np.median(length[depth == each])
    return np.flatnonzero(length > _TELLING * usual[depth])


def _shown(row: Integers, at: Integers, time: Floats) -> Bools:
    """Return which sums are shown: all but waits of less than half of what else their pixel has."""
    key = row // 2 * (1 << 32) + at
    own = row % 2 == 0
    order = np.argsort(key[own], kind="stable")
    keys, values = key[own][order], time[own][order]
    index = np.minimum(np.searchsorted(keys, key), max(len(keys) - 1, 0))
    there = (keys[index] == key) if len(keys) else np.zeros(len(key), bool)
    other = np.where(there, values[index], 0.0) if len(keys) else np.zeros(len(key))
    shown: Bools = own | (time >= _WAITING * other)
    return shown
