"""Where each series usually lies and how far it usually strays: medians over windows, which one outlier does not move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Levels", "Past", "median_of"]

Column = NDArray[np.float64]
Rows = NDArray[np.intp]

RECENT, WINDOW, BLOCKS = 8, 64, 16
"""Values of which the median is the level, differences from it of which the median is the usual one, and levels that are kept, one of every :data:`RECENT` values."""

# From a median of absolute differences to a standard deviation, of a normal distribution.
_TO_SIGMA = 1.4826
# In how many steps each series' usual difference is found anew.
_TURNS = 8
# So many outliers in a row are a new level.
_ADOPT = 12


@dataclass(frozen=True)
class Past:
    """What rows were before this step, of one quantity.

    Attributes
    ----------
    seen : ndarray
        Values that entered the level.
    level : ndarray
        Median of the last :data:`RECENT`; NaN where there are none.
    sigma : ndarray
        Usual distance of a value from the level before it, robust: 1.4826 times the median; NaN where it is not known.
    off : ndarray
        This step's distance from the level.
    top : ndarray
        Largest level there ever was.
    blocks : callable
        Takes rows and gives ``[n, BLOCKS]``, the levels of their blocks, the newest last; NaN before there were any.
    """

    seen: NDArray[np.int64]
    level: Column
    sigma: Column
    off: Column
    top: Column
    blocks: Callable[[Rows], Column]

    @cached_property
    def new_block(self) -> NDArray[np.bool_]:
        """Whether the step before ended a block: there is another level of values that have none in common with those of earlier blocks."""
        found: NDArray[np.bool_] = (self.seen > 0) & (self.seen % RECENT == 0)
        return found

    @cached_property
    def settled(self) -> Column:
        """:attr:`off` of what is known well enough to judge; 0 of the rest."""
        return np.where((self.seen >= RECENT) & np.isfinite(self.off), self.off, 0.0)


_ARRAYS = ("seen", "_strays", "level", "sigma", "top", "recent", "offs", "blocks")


class Levels:
    """Level and usual distance of every series, of several quantities, all in the same arrays: a step costs as many calls as one quantity would.

    Parameters
    ----------
    quantities : int
        How many.
    """

    def __init__(self, quantities: int) -> None:
        self._quantities = quantities
        self._each = np.arange(quantities)[:, None]
        # Entry series · quantities + quantity.
        self.seen = np.zeros(0, np.int64)
        self._strays = np.zeros(0, np.int64)
        self.level, self.sigma = np.zeros(0), np.zeros(0)
        self.top = np.zeros(0)
        self.recent, self.offs = np.zeros((0, RECENT)), np.zeros((0, WINDOW))
        self.blocks = np.zeros((0, BLOCKS))
        self._turn = 0

    def __len__(self) -> int:
        return len(self.seen) // self._quantities

    def grow(self, series: int) -> None:
        """Make room for more series."""
        more = (series - len(self)) * self._quantities
        if more <= 0:
            return
        for name in _ARRAYS:
            array = getattr(self, name)
            fill = 0 if array.dtype == np.int64 else np.nan
            added = np.full((more, *array.shape[1:]), fill, array.dtype)
            setattr(self, name, np.concatenate((array, added)))

    def past(self, quantity: int, series: Rows, values: Column) -> Past:
        """Return what series were before ``values``, of one quantity."""
        at = series * self._quantities + quantity
        level = self.level[at]
        return Past(
            *(self.seen[at], level, self.sigma[at], values - level, self.top[at]),
            lambda rows: self.blocks[at[rows]],
        )

    def take(self, series: Rows, values: Column, stray: NDArray[np.bool_]) -> None:
        """Let values ``[quantities, series]`` enter the level. Those that are not finite, and those that stray, do not; but many in a row are a new level."""
        self._turn += 1
        at, values, stray = (series * self._quantities + self._each).ravel(), values.ravel(), stray.ravel()
        good = np.isfinite(values)
        if stray.any() or self._strays[at].any():
            strays = np.where(stray & good, self._strays[at] + 1, 0)
            self._strays[at] = strays
            adopted = strays >= _ADOPT
            anew = at[adopted]
            if len(anew):
                self.seen[anew] = 0
                self.level[anew] = self.sigma[anew] = np.nan
                self.recent[anew] = self.offs[anew] = self.blocks[anew] = np.nan
                self._strays[anew] = 0
            good &= ~stray | adopted
        at, values = at[good], values[good]
        if not len(at):
            return
        seen = self.seen[at]
        # The first has no level to be off from: it takes the place of the oldest later.
        self.offs[at, np.maximum(seen - 1, 0) % WINDOW] = np.abs(values - self.level[at])
        self.recent[at, seen % RECENT] = values
        self.seen[at] = after = seen + 1
        level = self.level[at] = median_of(self.recent[at])
        self.top[at] = np.fmax(self.top[at], level)
        whole = after % RECENT == 0
        if whole.any():
            ended = at[whole]
            self.blocks[ended, :-1] = self.blocks[ended, 1:]
            self.blocks[ended, -1] = level[whole]
        turn = (seen < 2 * RECENT) | (at // self._quantities % _TURNS == self._turn % _TURNS)
        due = at[turn]
        if len(due):
            self.sigma[due] = _TO_SIGMA * median_of(self.offs[due])


def median_of(values: Column) -> Column:
    """Return the median of each row's numbers, the upper one of two; NaN sorts last and does not count."""
    values = np.sort(values, axis=1)
    count = values.shape[1] - np.isnan(values).sum(axis=1)
    middle: Column = values[np.arange(len(values)), count // 2]
    return middle
