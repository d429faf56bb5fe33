"""Choosing of many groups and steps those that a picture needs: the twin of ``src/aggregate/moment-pick.ts``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .dense import dense
from .query import MomentQuery

__all__ = ["pick"]

Column = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


def pick(
    keys: Sequence[Whole], step: Whole, value: Column, shown: Column, bad: Flags, query: MomentQuery
) -> tuple[Whole, tuple[int, int]]:
    """Return the places of the cells that stay, ordered by group and step, and how many groups and steps there were.

    The groups that stay are those that have values which are not finite or not known, then those of the greatest magnitude. Of each of ``points`` / 4 equal
    stretches of a group's steps the first, last, least and greatest value stay, and every one that is not finite or not known; a group of at most ``points`` steps
    stays as it is.

    Parameters
    ----------
    keys : sequence of ndarray
        What tells the group of each cell: numbers from -1.
    step, value, shown, bad : ndarray
        Of each cell, in the order of their steps. Groups are chosen by ``value``, steps by ``shown``; ``bad`` where values are not finite or not known.
    query : MomentQuery
        Of which ``series`` and ``points`` say how many groups and about how many steps may stay.
    """
    if not len(step):
        return np.zeros(0, np.int64), (0, 0)
    order, starts = _by_group(keys)
    ends = np.append(starts[1:], len(order))
    totals = len(starts), 1 + int(np.count_nonzero(step[1:] != step[:-1]))
    groups = np.arange(len(starts))
    if query.series is not None and query.series < len(groups):
        size = np.where(np.isnan(value), -1, np.abs(value))
        size[bad] = np.inf
        largest = np.argsort(-np.maximum.reduceat(size[order], starts), kind="stable")
        groups = np.sort(largest[: query.series])
    kept = []
    for group in groups:
        cells = order[starts[group] : ends[group]]
        if query.points is not None and len(cells) > query.points:
            cells = cells[_thinned(step[cells], shown[cells], bad[cells], query.points)]
        kept.append(cells)
    return np.concatenate(kept), totals


def _by_group(keys: Sequence[Whole]) -> tuple[Whole, Whole]:
    """Return the places of cells ordered by group, those of one as they came; and where each group begins among them."""
    code, size = keys[0], int(keys[0].max()) + 1
    for key in keys[1:]:
        more = int(key.max()) + 2
        code, size = code * more + (key + 1), size * more
    found, group = dense(code, 0, size)
    # numpy sorts short numbers by counting them.
    order = np.argsort(group.astype(np.uint16) if len(found) <= 1 << 16 else group, kind="stable")
    return order, np.searchsorted(group[order], np.arange(len(found)))


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
