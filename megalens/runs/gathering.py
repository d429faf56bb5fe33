"""Parts of memory put together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .errors import ClientError

# A recorder's row group has 16 MiB and at most one frame more, so that even a recording of zeros is within
# this.
_ANY_BYTES = 128 * 1024 * 1024
_TIMES = 64
_ANY_ROWS = 2_000_000
_ROWS_A_BYTE = 32


# How much a file may decompress to: a few bytes can stand for any number.
def check_unfolded(name: str, unfolded: int, stored: int) -> None:
    """Raise ``unreadable`` for what unfolds to over 128 MiB and over 64 times what is stored of it."""
    if unfolded > max(_ANY_BYTES, _TIMES * stored):
        raise _refused(
            name,
            f"{stored:,} bytes of it unfold to {unfolded:,}, and at most {_TIMES} times as many are read",
        )


def check_rows(name: str, rows: int, stored: int) -> None:
    """Raise ``unreadable`` for a file that claims more rows than it can have."""
    if rows < 0 or rows > max(_ANY_ROWS, _ROWS_A_BYTE * stored):
        raise _refused(name, f"it says that it has {rows:,} rows in {stored:,} bytes")


def _refused(name: str, why: str) -> ClientError:
    return ClientError(f"Could not read the run folder. {name}: {why}.", code="unreadable")


def trailing_mean(values: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """Return the mean of each value and those before it, ``points`` in all, over the finite ones; NaN where
    there is none.

    The sum starts afresh for each block of points: a running sum would keep the rounding of everything
    before.
    """
    if points < 2 or not len(values):
        return np.where(np.isfinite(values), values, np.nan)
    finite = np.isfinite(values)
    # Whole blocks, and one of nothing before the first point.
    behind = -len(values) % points
    sums, counts = (
        np.pad(column.astype(np.float64), (points, behind)).reshape(-1, points)
        for column in (np.where(finite, values, 0.0), finite)
    )
    total, count = (_windows(column)[: len(values)] for column in (sums, counts))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: NDArray[np.float64] = total / np.where(count > 0, count, np.nan)
    return mean


def _windows(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sliding sums of one block's length for all entries behind the first block.

    Each is the block's start up to the entry, plus the end of the previous block.
    """
    from_start = np.cumsum(blocks, axis=1)[1:]
    to_end = np.cumsum(blocks[:, ::-1], axis=1)[:-1, ::-1]
    from_start[:, :-1] += to_end[:, 1:]
    return from_start.ravel()
