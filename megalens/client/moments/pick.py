"""Choosing of many groups and steps those that a picture needs: the twin of ``src/aggregate/moment-pick.ts``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .grouped import Grouped
from .query import MomentQuery

__all__ = ["pick"]

Column = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


def pick(cells: Grouped, shown: Column, query: MomentQuery) -> Whole:
    """Return which cells stay, ordered by group and step.

    The groups that stay are those that have values which are not finite or not known, then those of the greatest magnitude. Of each of ``points`` / 4 equal
    stretches of a group's steps the first, last, least and greatest value stay, and every one that is not finite or not known; a group of at most ``points`` steps
    stays as it is.

    Parameters
    ----------
    cells : Grouped
        Groups are chosen by their values.
    shown : ndarray
        The value of each cell as it is shown, by which steps are chosen.
    query : MomentQuery
        Of which ``series`` and ``points`` say how many groups and about how many steps may stay.
    """
    starts = cells.starts
    ends = np.append(starts[1:], len(shown))
    groups = np.arange(len(starts))
    if query.series is not None and query.series < len(groups):
        size = np.where(np.isnan(cells.value), -1, np.abs(cells.value))
        size[cells.bad] = np.inf
        largest = np.argsort(-np.maximum.reduceat(size, starts), kind="stable")
        groups = np.sort(largest[: query.series])
    kept = [np.zeros(0, np.int64)]
    for begin, end in zip(starts[groups].tolist(), ends[groups].tolist(), strict=True):
        if query.points is not None and end - begin > query.points:
            one = slice(begin, end)
            kept.append(begin + _thinned(cells.step[one], shown[one], cells.bad[one], query.points))
        else:
            kept.append(np.arange(begin, end))
    return np.concatenate(kept)


def _thinned(step: Whole, shown: Column, bad: Flags, points: int) -> Whole:
    """Return the places of those steps of a group that stay."""
    spans = max(1, points // 4)
    span = ((step - step[0]) / (max(1, step[-1] - step[0]) / spans)).astype(np.int64).clip(max=spans - 1)
    starts = np.flatnonzero(np.diff(span, prepend=-1))
    lengths = np.diff(starts, append=len(span))
    keep = bad | np.isinf(shown)
    keep[starts] = keep[starts + lengths - 1] = True
    for choose, farthest in ((np.minimum, np.inf), (np.maximum, -np.inf)):
        finite = np.where(np.isfinite(shown), shown, farthest)
        found = np.flatnonzero(finite == np.repeat(choose.reduceat(finite, starts), lengths))
        # Of equals the first.
        keep[found[np.flatnonzero(np.diff(span[found], prepend=-1))]] = True
    return np.flatnonzero(keep)
