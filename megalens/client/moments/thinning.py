"""Leaving out steps between the extremes, part by part, so that of millions of cells only those are held that a picture may show."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .parts import Part

__all__ = ["Thinner", "keep_extremes", "stretches"]

Column = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Thinner:
    """Thins parts that come in the order of their steps.

    Where a stretch of a group begins depends on the group's first and last step, which are not known before the last part has come: they are taken for the same in
    all groups, and looked at afterwards.

    Parameters
    ----------
    groups : int
        Codes of groups are less.
    last : int
        The last step that most groups have.
    points : int
        Of each of ``points`` / 4 stretches of a group's steps the ends and extremes stay.

    Attributes
    ----------
    count : ndarray
        Cells of each group.
    """

    def __init__(self, groups: int, last: int, points: int) -> None:
        self._points = points
        self._last = last
        self._bounds: tuple[Whole, Whole, Whole] | None = None
        self._begin(groups)

    def _begin(self, groups: int) -> None:
        self.count = np.zeros(groups, np.int64)
        self._seen_first, self._seen_last = np.zeros((2, groups), np.int64)

    def again(self) -> bool:
        """Whether what came was thinned by wrong first and last steps; with the right ones it is to come again."""
        there = self.count > 0
        if self._bounds is None or not there.any():
            return False
        seen = (self._seen_first, self._seen_last, self.count)
        first, last, count = self._bounds
        right = (
            np.array_equal(first[there], self._seen_first[there])
            and np.array_equal(last[there], self._seen_last[there])
            and np.array_equal(count[there] > self._points, self.count[there] > self._points)
        )
        self._bounds = seen
        if not right:
            self._begin(len(self.count))
        return not right

    def thin(self, part: Part) -> Part:
        """Return of a part the cells that stay, in their order."""
        if not len(part.step):
            return part
        groups = len(self.count)
        bounds = self._bounds
        if bounds is None:
            first, last, count = np.repeat([[part.step[0]], [self._last], [self._points + 1]], groups, axis=1)
            bounds = self._bounds = (first, last, count)
        code = part.keys["code"]
        # numpy sorts short numbers by counting them.
        order = np.argsort(code.astype(np.uint16) if groups <= 1 << 16 else code, kind="stable")
        code, step = code[order], part.step[order]
        changes = np.diff(code, prepend=-1) != 0
        begins = np.flatnonzero(changes)
        self._note(code[begins], step, begins)
        first, last, count = (bound[code] for bound in bounds)
        stretch = stretches(step, first, last, self._points)
        changes[1:] |= stretch[1:] != stretch[:-1]
        keep = keep_extremes(np.flatnonzero(changes), part.value[order], part.bad[order])
        keep |= count <= self._points
        return part.take(np.sort(order[keep]))

    def _note(self, groups: Whole, step: Whole, begins: Whole) -> None:
        ends = np.append(begins[1:], len(step))
        fresh = self.count[groups] == 0
        self._seen_first[groups[fresh]] = step[begins[fresh]]
        self._seen_last[groups] = step[ends - 1]
        self.count[groups] += ends - begins


def stretches(step: Whole, first: Any, last: Any, points: int) -> Whole:
    """Return in which of ``points`` / 4 equal stretches from the first to the last step of its group each step lies, from 0."""
    spans = max(1, points // 4)
    found: Whole = (
        ((step - first) / (np.maximum(1, last - first) / spans)).astype(np.int64).clip(max=spans - 1)
    )
    return found


def keep_extremes(starts: Whole, shown: Column, bad: Flags) -> Flags:
    """Say which cells stay of runs that begin at ``starts``: the first, last, least and greatest, and every one that is not finite or not known."""
    lengths = np.diff(starts, append=len(shown))
    run = np.repeat(np.arange(len(starts)), lengths)
    finite = np.isfinite(shown)
    keep = bad | np.isinf(shown)
    keep[starts] = keep[starts + lengths - 1] = True
    for choose, farthest in ((np.minimum, np.inf), (np.maximum, -np.inf)):
        compared = np.where(finite, shown, farthest)
        found = np.flatnonzero(compared == choose.reduceat(compared, starts)[run])
        # Of equals the first.
        keep[found[np.flatnonzero(np.diff(run[found], prepend=-1))]] = True
    return keep
