"""Cells put beside the others of their group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .parts import Part

__all__ = ["Grouped"]

Column = NDArray[np.float64]
Whole = NDArray[np.int64]

# Up to so many times as many codes as cells are counted in a table.
_SPARSE = 4


@dataclass(frozen=True)
class Grouped:
    """The cells of all parts, ordered by group, then step.

    Attributes
    ----------
    starts, counts : ndarray
        Where each group begins, of which there is a cell; and how many cells it had before some were left out.
    place, step, value, bad : ndarray
        Of each cell its place among those of all parts, and what :class:`Part` says of it.
    steps : ndarray
        The different steps, ascending.
    """

    starts: Whole
    counts: Whole
    place: Whole
    step: Whole
    value: Column
    bad: NDArray[np.bool_]
    steps: Whole

    @property
    def totals(self) -> tuple[int, int]:
        """How many groups and different steps there are."""
        return len(self.starts), len(self.steps)

    @staticmethod
    def of(parts: Sequence[Part], counts: Whole | None = None) -> Grouped:
        """Order the cells of parts that follow each other in the order of their steps. ``counts``: how many each code had before some were left out.

        Each part is sorted by itself, while it is in the processor's caches, and its groups are then written behind what the parts before it had of them: sorting all
        of ten million cells, and reading the columns in that order, takes five times as long.
        """
        codes, size = _codes(parts)
        totals = np.zeros(size, np.int64)
        for code in codes:
            totals += np.bincount(code, minlength=size)
        ends = np.cumsum(totals)
        free = ends - totals
        cells = int(ends[-1]) if size else 0
        place, step, value, bad = (np.empty(cells, kind) for kind in (np.int64, np.int64, np.float64, bool))
        done = 0
        for part, code in zip(parts, codes, strict=True):
            count = len(code)
            order = np.argsort(code, kind="stable")
            sorted_code = code[order]
            begins = np.flatnonzero(np.diff(sorted_code, prepend=sorted_code[:1] + 1))
            groups, lengths = sorted_code[begins], np.diff(begins, append=count)
            to = np.repeat(free[groups] - begins, lengths) + np.arange(count)
            free[groups] += lengths
            place[to] = order + done
            step[to], value[to], bad[to] = part.step[order], part.value[order], part.bad[order]
            done += count
        there = totals > 0
        steps = np.concatenate([part.steps for part in parts])
        return Grouped(
            (ends - totals)[there],
            totals[there] if counts is None else counts[counts > 0],
            place,
            step,
            value,
            bad,
            steps[np.diff(steps, prepend=steps[:1] - 1) != 0],
        )

    def since(self, first: int) -> Grouped:
        """Return the cells from a step on."""
        inside = self.step >= first
        if inside.all():
            return self
        totals = np.add.reduceat(inside, self.starts, dtype=np.int64)
        ends = np.cumsum(totals)
        return Grouped(
            (ends - totals)[totals > 0],
            totals[totals > 0],
            self.place[inside],
            self.step[inside],
            self.value[inside],
            self.bad[inside],
            self.steps[self.steps >= first],
        )


def _codes(parts: Sequence[Part]) -> tuple[list[NDArray[Any]], int]:
    """Return a number for the group of each cell, and more than the greatest of them."""
    codes = [part.keys["code"] for part in parts]
    size = 1 + max((int(code.max(initial=-1)) for code in codes), default=-1)
    for name in list(parts[0].keys)[1:]:
        more = 2 + max(int(part.keys[name].max(initial=-1)) for part in parts)
        codes = [code * more + (part.keys[name] + 1) for code, part in zip(codes, parts, strict=True)]
        size *= more
    if size > _SPARSE * sum(len(code) for code in codes) + 1024:
        known = np.unique(np.concatenate(codes))
        codes, size = [np.searchsorted(known, code) for code in codes], len(known)
    # numpy sorts short numbers by counting them.
    return ([code.astype(np.uint16) for code in codes] if size <= 1 << 16 else codes), size
