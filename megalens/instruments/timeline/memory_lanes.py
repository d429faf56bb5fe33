"""The memory of ranks as a picture needs it: stretches of time with what was allocated, peaks kept at any
width, and in words where the peak was and who keeps most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .analysis import Analysis
from .lanes import MOST_PIECES, shown_ms
from .spans import Bools, Integers

MOST_MEMORY_ROWS = 1_500_000
_NUMBERS = ("step", "rank", "start", "end", "before", "allocated", "reserved", "peak", "limit")
_TEXTS = ("phase", "name", "limit_of", "device")
COLUMNS = [*_NUMBERS, *_TEXTS]
_MOST_HOLDERS = 6
_HELD = "held"
"""Of a snapshot: what a line of code holds, which is no stretch of time."""


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Rows of the stream ``memory`` as columns; texts as indices into ``words``."""

    columns: dict[str, Integers]
    words: dict[str, list[str]]

    @classmethod
    def of(cls, table: pa.Table) -> MemoryRows:
        columns = {name: table[name].to_numpy().astype(np.int64) for name in _NUMBERS}
        words = {}
        for name in _TEXTS:
            # Pieces of one column may have dictionaries of their own.
            coded = table[name].cast(pa.string()).combine_chunks().dictionary_encode()
            coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
            columns[name] = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            words[name] = coded.dictionary.to_pylist()
        return cls(columns, words)

    def __getitem__(self, name: str) -> Integers:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["step"])

    def is_text(self, column: str, text: str) -> Bools:
        words = self.words[column]
        found: Bools = self[column] == (words.index(text) if text in words else -1)
        return found

    def take(self, which: Bools | Integers) -> MemoryRows:
        return MemoryRows({name: column[which] for name, column in self.columns.items()}, self.words)


def memory_of(
    rows: MemoryRows,
    analysis: Analysis,
    ranks: Sequence[int],
    window: tuple[float, float] | None,
    columns: int,
    whole: tuple[float, float],
) -> dict[str, Any] | None:
    """Return the memory of some ranks as plain JSON, times as those of their lanes; None without any.

    A stretch that fills at least one of ``columns`` pixels stays; of the shorter ones of a pixel the largest
    peak and the last size do. ``scale`` is the largest peak of these ranks in all that was read, which
    ``peak`` tells of; ``holders`` are the layers that keep most after their forward pass, or the lines of
    code that hold most of a snapshot.
    """
    mine = rows.take(np.isin(rows["rank"], list(ranks)) & np.isin(rows["rank"], analysis.spans.ranks))
    held = mine.is_text("phase", _HELD)
    timed = mine.take(~held)
    if not len(timed):
        return None
    shown = window if window is not None else whole
    columns = max(50, min(columns, MOST_PIECES // max(len(ranks), 1)))
    lanes = sorted({*timed["rank"].tolist()}, key=list(ranks).index)
    pieces = [
        _pieces(timed.take(timed["rank"] == rank), analysis, lane, shown, columns)
        for lane, rank in enumerate(lanes)
    ]
    joined = {name: [each for one in pieces for each in one[name]] for name in pieces[0]}
    return {
        "ranks": lanes,
        "scale": int(timed["peak"].max()),
        "pieces": joined,
        "peak": _peak(timed),
        "holders": _holders(mine.take(held), timed),
    }


def _pieces(
    mine: MemoryRows, analysis: Analysis, lane: int, shown: tuple[float, float], columns: int
) -> dict[str, list[Any]]:
    """Return the stretches of one rank: what lies in no other row, and the gaps between."""
    order = np.lexsort((-mine["end"], mine["start"]))
    mine = mine.take(order)
    start, end = mine["start"], mine["end"]
    leaf = np.append(start[1:] >= end[:-1], True)
    inner = mine.take(leaf)
    # Of sums one phase may begin before another ends.
    begin = np.maximum(
        inner["start"], np.append(np.iinfo(np.int64).min, np.maximum.accumulate(inner["end"])[:-1])
    )
    inner, begin = inner.take(inner["end"] >= begin), begin[inner["end"] >= begin]
    n = len(begin)
    gap = np.maximum(inner["allocated"][:-1], inner["before"][1:])
    # Every other stretch is what lies between two rows.
    table = np.full((2 * n - 1, 8), -1, np.int64)
    table[0::2, 0], table[0::2, 1] = begin, inner["end"]
    table[1::2, 0], table[1::2, 1] = inner["end"][:-1], begin[1:]
    for at, name in enumerate(("allocated", "reserved", "peak"), 2):
        table[0::2, at] = inner[name]
        table[1::2, at] = gap if name == "peak" else inner[name][:-1]
    for at, name in enumerate(("step", "phase", "name"), 5):
        table[0::2, at] = inner[name]
    _raise_gaps(table, mine.take(~leaf))
    rank = np.full(len(table), int(mine["rank"][0]))
    times = shown_ms(analysis, np.append(rank, rank), np.append(table[:, 0], table[:, 1]))
    begins, ends = times[: len(table)], times[len(table) :]
    seen = (ends >= shown[0]) & (begins <= shown[1]) & (ends > begins)
    table, begins, ends = table[seen], begins[seen], ends[seen]
    pixel = (shown[1] - shown[0]) / columns
    short = ends - begins < pixel
    cell = np.clip((begins - shown[0]) / pixel, 0, columns - 1).astype(np.int64)
    # Each long one is its own, and the short ones of a pixel are one, between long ones.
    new = (
        np.append(True, ~short[1:] | ~short[:-1] | (cell[1:] != cell[:-1]))
        if len(table)
        else np.zeros(0, bool)
    )
    first = np.flatnonzero(new)
    if not len(first):
        return {name: [] for name in _PIECE}
    last = np.append(first[1:], len(table)) - 1
    peak = np.maximum.reduceat(table[:, 4], first)
    group = np.cumsum(new) - 1
    by_peak = np.lexsort((-table[:, 4], group))
    highest = by_peak[np.searchsorted(group[by_peak], np.arange(len(first)))]
    words = mine.words
    return {
        "lane": [lane] * len(first),
        "begin": np.round(begins[first], 6).tolist(),
        "end": np.round(ends[last], 6).tolist(),
        "allocated": table[last, 2].tolist(),
        "reserved": np.maximum.reduceat(table[:, 3], first).tolist(),
        "peak": peak.tolist(),
        "count": (last - first + 1).tolist(),
        "step": table[highest, 5].tolist(),
        "phase": [words["phase"][each] if each >= 0 else "" for each in table[highest, 6].tolist()],
        "name": [words["name"][each] if each >= 0 else "" for each in table[highest, 7].tolist()],
    }


def _raise_gaps(table: Integers, around: MemoryRows) -> None:
    """Put a peak of a phase or step that no row within it shows into its longest gap, shortest first."""
    for row in np.argsort(around["end"] - around["start"], kind="stable").tolist():
        first, last = np.searchsorted(table[:, 0], [around["start"][row], around["end"][row]])
        inside, peak = table[first:last], around["peak"][row]
        if len(inside) and inside[:, 4].max() < peak:
            long = np.where(inside[:, 5] < 0, inside[:, 1] - inside[:, 0], -1)
            inside[long.argmax(), 4] = peak


_PIECE = ("lane", "begin", "end", "allocated", "reserved", "peak", "count", "step", "phase", "name")


def _peak(timed: MemoryRows) -> dict[str, Any]:
    """Return where most was allocated: the shortest row that had it, of the first step that did."""
    rows = np.flatnonzero(timed["peak"] == timed["peak"].max())
    rows = rows[timed["step"][rows] == timed["step"][rows].min()]
    row = int(rows[(timed["end"] - timed["start"])[rows].argmin()])
    numbers = {name: int(timed[name][row]) for name in ("rank", "step", "limit", "reserved")}
    texts = {name: timed.words[name][int(timed[name][row])] for name in _TEXTS}
    return {"bytes": int(timed["peak"][row]), **numbers, **texts}


def _holders(held: MemoryRows, timed: MemoryRows) -> list[dict[str, Any]]:
    if len(held):
        named, kept = held, held["allocated"]
    else:
        named = timed.take(timed.is_text("phase", "forward") & ~timed.is_text("name", ""))
        kept = named["allocated"] - named["before"]
    names = np.unique(named["name"])
    of = [(kept[named["name"] == name], timed.words["name"][int(name)]) for name in names]
    sizes = sorted(
        ((int(np.sum(each) if len(held) else np.median(each)), name) for each, name in of), reverse=True
    )
    return [{"name": name, "bytes": size} for size, name in sizes[:_MOST_HOLDERS] if size > 0]
