"""Rows that others supersede, left out of the pieces that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ....protocol import LAST_STEP
from .pieces import Chunk, Listed, Piece, PieceReading, Wanted


@dataclass(frozen=True)
class Hidden:
    """Rows of a stat within ranges of steps (last ones included): of some names, or (None) of all."""

    stat: str
    names: frozenset[str] | None
    spans: tuple[tuple[int, int], ...]

    def steps(self, step: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which steps are in the ranges."""
        found = np.zeros(len(step), bool)
        for low, high in self.spans:
            found |= (step >= low) & (step <= high)
        return found


class PartlyHidden(Piece):
    """A piece without its hidden rows. ``listed`` has those that are hidden by their names all the same."""

    def __init__(self, piece: Piece, hidden: Sequence[Hidden]) -> None:
        self._piece, self._hidden = piece, hidden
        self.samples = piece.samples
        self.listed = dict(piece.listed)
        for each in hidden:
            if each.names is None and each.stat in self.listed:
                of = self.listed.pop(each.stat)
                steps = of.steps[~each.steps(of.steps)]
                if len(steps):
                    rows = np.count_nonzero(~each.steps(read_stat(piece, each.stat)["step"]))
                    self.listed[each.stat] = Listed(int(rows), steps, of.names)
        self.low = min((int(of.steps[0]) for of in self.listed.values()), default=LAST_STEP + 1)
        self.high = max((int(of.steps[-1]) for of in self.listed.values()), default=-1)

    def read(self, reading: PieceReading) -> Chunk:
        chunk = self._piece.read(reading)
        keep = np.ones(len(chunk["step"]), bool)
        firsts = reading.wanted.first_indices()
        for each in self._hidden:
            if each.stat not in firsts:
                continue
            first, names = firsts[each.stat], reading.wanted.names[each.stat]
            named = [each.names is None or name in each.names for name in names]
            # The last one is for rows of other stats, before and behind.
            of = np.clip(chunk["name_index"] - first, -1, len(named))
            keep &= ~(np.array([*named, False, False])[of] & each.steps(chunk["step"]))
        return chunk if keep.all() else {name: column[keep] for name, column in chunk.items()}


_known: WeakKeyDictionary[Piece, dict[str, list[tuple[tuple[str, ...], NDArray[np.int64]]]]] = (
    WeakKeyDictionary()
)


def layouts_of(piece: Piece, stat: str) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
    """Return each set of names that steps of a piece have, no name twice, with these steps."""
    of = piece.listed[stat]
    if of.rows == len(of.steps) * len(of.names):
        return [(of.names, of.steps)]
    known = _known.setdefault(piece, {})
    if stat not in known:
        rows = read_stat(piece, stat)
        steps, index = rows["step"], rows["name_index"]
        order = np.lexsort((index, steps))
        found: dict[bytes, list[int]] = {}
        for at in np.split(order, np.flatnonzero(np.diff(steps[order])) + 1):
            found.setdefault(index[at].tobytes(), []).append(int(steps[at[0]]))
        known[stat] = [
            (tuple(of.names[each] for each in np.frombuffer(names, index.dtype)), np.array(taken))
            for names, taken in found.items()
        ]
    return known[stat]


def read_stat(piece: Piece, stat: str, *columns: str) -> Chunk:
    """Return the rows of a stat; a name's index is its place in ``listed[stat].names``."""
    names = piece.listed[stat].names if stat in piece.listed else ()
    reading = PieceReading(Wanted({stat: names}, columns))
    try:
        return piece.read(reading)
    finally:
        reading.close()


def newest(parts: Sequence[Sequence[Piece]]) -> list[list[Piece]]:
    """Return the pieces of each part without the rows of a stat from the first step on that a later part has
    of it.

    Pieces of which nothing is left are left out.
    """
    first: dict[str, int] = {}
    found = []
    for pieces in reversed(parts):
        cut = [without(piece, first) for piece in pieces]
        found.append([piece for piece in cut if piece.listed])
        for piece in pieces:
            for stat, of in piece.listed.items():
                first[stat] = min(first.get(stat, LAST_STEP), int(of.steps[0]))
    return found[::-1]


def without(piece: Piece, first: Mapping[str, int]) -> Piece:
    """Return a piece without the rows of each stat from a step on."""
    hidden = [
        Hidden(stat, None, ((first[stat], LAST_STEP),))
        for stat, of in piece.listed.items()
        if stat in first and of.steps[-1] >= first[stat]
    ]
    return PartlyHidden(piece, hidden) if hidden else piece
