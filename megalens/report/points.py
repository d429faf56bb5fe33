"""Long series made short enough for a page, keeping every extreme that a picture of that width could show."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_POINTS", "thin"]

MOST_POINTS = 600
"""Most points of one line in a report: two for each of 300 columns."""


def thin(values: npt.NDArray[np.floating[Any]], most: int = MOST_POINTS) -> npt.NDArray[np.int64]:
    """Return the places that are kept of a series, ascending.

    The series is cut into ``most / 2`` equal pieces, and the least and the greatest finite value of each are kept, with the first and
    last of all. A piece without a finite value keeps its first place, so that the gap stays.
    """
    count = len(values)
    if count <= most:
        return np.arange(count)
    kept: set[int] = {0, count - 1}
    edges = np.linspace(0, count, most // 2).astype(int)
    for start, end in pairwise(edges):
        piece = np.asarray(values[start:end], dtype=np.float64)
        finite = np.flatnonzero(np.isfinite(piece))
        if finite.size == 0:
            kept.add(int(start))
            continue
        kept.add(int(start + finite[piece[finite].argmin()]))
        kept.add(int(start + finite[piece[finite].argmax()]))
    return np.array(sorted(kept))
