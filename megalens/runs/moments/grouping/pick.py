"""Choosing of many groups and steps those that a picture needs: the twin of ``src/aggregate/moment-pick.ts``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .grouped import Grouped
from .query import MomentQuery
from .thinning import keep_extremes, stretches

__all__ = ["pick"]

Column = NDArray[np.float64]
Whole = NDArray[np.int64]


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
    long = np.zeros(len(starts), bool) if query.points is None else cells.counts > query.points
    groups = np.arange(len(starts))
    if query.series is not None and query.series < len(groups):
        size = np.where(np.isnan(cells.value), -1, np.abs(cells.value))
        size[cells.bad] = np.inf
        largest = np.argsort(-np.maximum.reduceat(size, starts), kind="stable")
        groups = np.sort(largest[: query.series])
    kept = [np.zeros(0, np.int64)]
    for group in groups:
        one = slice(starts[group], ends[group])
        places = np.arange(one.start, one.stop)
        if query.points is not None and long[group]:
            step = cells.step[one]
            stretch = stretches(step, step[0], step[-1], query.points)
            runs = np.flatnonzero(np.diff(stretch, prepend=-1))
            places = places[keep_extremes(runs, shown[one], cells.bad[one])]
        kept.append(places)
    return np.concatenate(kept)
