"""Where lines break off, and which of their points are drawn: the twin of ``src/aggregate/decimate.ts``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .moments.grouping.series import keep_extremes, stretches

Integers = NDArray[np.int64]
Column = NDArray[np.float64]

_WIDER = 1.5


def gap_starts(steps: Integers) -> Integers:
    """Return the indices of ascending steps before which steps are missing.

    That is the second of two steps whose distance is more than 1.5 times the larger of the neighbouring
    distances. It needs no knowledge of how often anything is traced.
    """
    distance = np.diff(steps)
    if len(distance) < 2:
        return np.zeros(0, np.int64)
    neighbours = np.maximum(np.append(0, distance[:-1]), np.append(distance[1:], 0))
    return np.flatnonzero(distance > _WIDER * neighbours) + 1


def thin_line(
    steps: Integers, values: Column, starts: Integers, points: int | None
) -> tuple[Integers, Integers]:
    """Choose about ``points`` points (None: all) so that the line looks as it did.

    Of each of ``points`` / 4 equal spans the first, last, least and greatest stay, where values cease to be
    finite, and both ends of every stretch. ``starts`` are the indices at which a stretch begins. Returns the
    ascending indices that stay, and the indices among those at which a stretch begins.
    """
    if points is None or len(values) <= points:
        return np.arange(len(values)), starts
    begins = np.diff(stretches(steps, steps[0], steps[-1], points), prepend=-1) != 0
    finite = np.isfinite(values)
    ceases = ~finite & (begins | np.append(True, finite[:-1]))
    shown: Any = np.where(finite, values, np.nan)
    keep = keep_extremes(np.flatnonzero(begins), shown, ceases)
    keep[starts] = keep[starts - 1] = True
    chosen = np.flatnonzero(keep)
    return chosen, np.searchsorted(chosen, starts)


def line_order(lines: NDArray[Any], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stable order of rows by line, then by step."""
    if (steps[1:] >= steps[:-1]).all():
        # As most come. Small numbers are sorted without comparing them.
        small = lines.min(initial=0) >= -(2**15) and lines.max(initial=0) < 2**15
        return np.argsort(lines.astype(np.int16) if small else lines, kind="stable")
    return np.lexsort((steps, lines))
