"""Parts of memory put together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["even_stride", "gathered"]

_LONG_BYTES = 2048


def even_stride(places: NDArray[np.int64]) -> int | None:
    """Return how far apart places are where each is as far from the one before and all ascend; None otherwise."""
    if len(places) < 2:
        return 0
    apart = int(places[1] - places[0])
    return apart if apart > 0 and (np.diff(places) == apart).all() else None


def gathered(data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[Any]:
    """Return parts of ``data``, one after the other.

    Parameters
    ----------
    data : array of uint8
        The memory; it begins at a multiple of 8.
    starts, sizes : array of int64
        Where the parts begin in it, and how long they are. All of them must be within.
    """
    total = int(sizes.sum())
    if not total:
        return np.empty(0, np.uint8)
    if total >= _LONG_BYTES * len(starts):
        parts = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        return np.concatenate([data[begin:end] for begin, end in parts])
    width = next(width for width in (8, 4, 1) if not ((starts % width).any() or (sizes % width).any()))
    units = data[: len(data) // width * width].view(f"u{width}")
    starts, sizes = starts // width, sizes // width
    apart = even_stride(starts)
    if apart is not None and (sizes == sizes[0]).all():
        # Messages of one size, as most are.
        found = np.lib.stride_tricks.as_strided(
            units[int(starts[0]) :], (len(starts), int(sizes[0])), (apart * width, width), writeable=False
        )
        # A copy also of what is in one piece: the memory is used again.
        return found.copy().reshape(-1).view(np.uint8)
    ends = np.cumsum(sizes)
    places = np.repeat(starts - (ends - sizes), sizes)
    places += np.arange(len(places))
    taken: NDArray[Any] = units[places]
    return taken.view(np.uint8)
