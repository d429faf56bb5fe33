"""Downsampling while rows are read: steps between the extremes are dropped part by part, so that memory holds only what a picture may show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cells import Arena
from .parts import Part

__all__ = ["Thinner", "keep_extremes", "stretches"]

Column = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Thinner:
    """Thins parts that arrive in the order of their steps.

    The stretches of a group depend on its first and last step, which are known only after the last part. The first pass therefore assumes that all groups have the same first and last step.
    :meth:`again` checks this afterwards and asks for a second pass if it was wrong.

    Parameters
    ----------
    groups : int
        Codes of groups are less.
    last : int
        The last step that most groups have.
    points : int
        Of each of ``points`` / 4 stretches of a group's steps the ends and extremes stay.
    """

    def __init__(self, groups: int, last: int, points: int) -> None:
        self._points = points
        self._first: int | None = None
        self._last = last
        self._known: _Spans | None = None
        self._seen = _Spans.none(groups)
        self._arena = Arena()

    @property
    def count(self) -> Whole:
        """Cells of each group that came."""
        return self._seen.count

    def again(self) -> bool:
        """Whether the parts were thinned with wrong first and last steps. If so, all parts have to come a second time, now with the right ones."""
        seen = self._seen
        there = seen.count > 0
        if self._known is not None or (
            (seen.first[there] == self._first).all()
            and (seen.last[there] == self._last).all()
            and (seen.count[there] > self._points).all()
        ):
            return False
        self._known, self._seen, self._arena = seen, _Spans.none(len(there)), Arena()
        return True

    def thin(self, part: Part) -> Part:
        """Return the cells of a part that stay, in their order."""
        if not len(part.step):
            return part
        if self._first is None:
            self._first = int(part.step[0])
        if part.across and self._known is None:
            return self._thin_grid(part, self._first)
        code = part.keys["code"]
        # numpy sorts short numbers by counting them.
        order = np.argsort(code.astype(np.uint16) if len(self.count) <= 1 << 16 else code, kind="stable")
        # From here on the cells of a group are neighbours, in the order of their steps. A run is what a group has in one stretch: it begins where the group or the stretch changes.
        code, step = code[order], part.step[order]
        changes = np.diff(code, prepend=-1) != 0
        begins = np.flatnonzero(changes)
        ends = np.append(begins[1:], len(step))
        self._seen.note(code[begins], step[begins], step[ends - 1], ends - begins)
        known = self._known
        first, last = (self._first, self._last) if known is None else (known.first[code], known.last[code])
        stretch = stretches(step, first, last, self._points)
        changes[1:] |= stretch[1:] != stretch[:-1]
        keep = keep_extremes(np.flatnonzero(changes), part.value[order], part.bad[order])
        # A part may end within a stretch: its cells are then thinned in two runs, which keeps a few more cells. `pick` thins once more at the end.
        if known is not None:
            # Groups with few cells are shown whole.
            keep |= known.count[code] <= self._points
        return part.take(np.sort(order[keep]), self._arena)

    def _thin_grid(self, part: Part, first: int) -> Part:
        """Thin a part of which every step has the same groups: they need no sorting, and their stretches are the same."""
        steps, across = len(part.steps), part.across
        self._seen.note(part.keys["code"][:across], part.steps[0], part.steps[-1], steps)
        runs = np.flatnonzero(np.diff(stretches(part.steps, first, self._last, self._points), prepend=-1))
        keep = keep_extremes(runs, part.value.reshape(steps, across), part.bad.reshape(steps, across))
        return part.take(np.flatnonzero(keep), self._arena)


@dataclass(frozen=True)
class _Spans:
    """First and last step, and the number of cells, by the code of the group; of a group without cells only the number means something."""

    first: Whole
    last: Whole
    count: Whole

    @staticmethod
    def none(groups: int) -> _Spans:
        return _Spans(*np.zeros((3, groups), np.int64))

    def note(self, groups: Whole, first: Any, last: Any, count: Any) -> None:
        """Take in that so many cells of groups came, behind those before, from a first to a last step."""
        self.first[groups] = np.where(self.count[groups] == 0, first, self.first[groups])
        self.last[groups] = last
        self.count[groups] += count


def stretches(step: Whole, first: Any, last: Any, points: int) -> Whole:
    """Return in which of ``points`` / 4 equal stretches from the first to the last step of its group each step lies, from 0."""
    spans = max(1, points // 4)
    found: Whole = (
        ((step - first) / (np.maximum(1, last - first) / spans)).astype(np.int64).clip(max=spans - 1)
    )
    return found


def keep_extremes(starts: Whole, shown: Column, bad: Flags) -> Flags:
    """Say which cells of each run stay: the first, last, least and greatest, and all that are not finite or not known.

    Parameters
    ----------
    starts : ndarray
        Where each run begins, from 0.
    shown, bad : ndarray
        Of each cell its value and whether there is anything in it that is not finite or not known: ``[cells]``, or ``[steps, groups]`` where the runs of all groups begin at the same steps.

    Returns
    -------
    ndarray
        Of the same shape.
    """
    lengths = np.diff(starts, append=len(shown))
    across = shown[0].size if len(shown) else 1
    finite = np.isfinite(shown)
    whole = bool(finite.all())
    keep = bad.copy() if whole else bad | np.isinf(shown)
    keep[starts] = keep[starts + lengths - 1] = True
    for choose, farthest in ((np.minimum, np.inf), (np.maximum, -np.inf)):
        compared = shown if whole else np.where(finite, shown, farthest)
        found = np.flatnonzero(compared == np.repeat(choose.reduceat(compared, starts), lengths, axis=0))
        run = np.searchsorted(starts, found // across, side="right")
        # Of equal extremes only the first stays.
        _, once = np.unique(run * across + found % across, return_index=True)
        keep.flat[found[once]] = True
    return keep
