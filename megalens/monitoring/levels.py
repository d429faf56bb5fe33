"""Where each series usually lies and how far it usually strays: medians over windows, which one outlier does not move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Level", "Levels", "Past", "median_of"]

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
    new_block : ndarray
        Whether the step before ended a block: there is another level of values that have none in common with those of earlier blocks.
    blocks : callable
        Takes rows and gives ``[n, BLOCKS]``, the levels of their blocks, the newest last; NaN before there were any.
    """

    seen: NDArray[np.int64]
    level: Column
    sigma: Column
    off: Column
    top: Column
    new_block: NDArray[np.bool_]
    blocks: Callable[[Rows], Column]


_ARRAYS = ("seen", "_strays", "level", "sigma", "top", "recent", "offs", "blocks")


class Level:
    """Level and usual distance of every series, of one quantity."""

    def __init__(self) -> None:
        self.seen = np.zeros(0, np.int64)
        self._strays = np.zeros(0, np.int64)
        self.level, self.sigma = np.zeros(0), np.zeros(0)
        self.top = np.zeros(0)
        self.recent, self.offs = np.zeros((0, RECENT)), np.zeros((0, WINDOW))
        self.blocks = np.zeros((0, BLOCKS))
        self._turn = 0

    def grow(self, series: int) -> None:
        """Make room for more series."""
        more = series - len(self.seen)
        if more <= 0:
            return
        for name in _ARRAYS:
            array = getattr(self, name)
            fill = 0 if array.dtype == np.int64 else np.nan
            added = np.full((more, *array.shape[1:]), fill, array.dtype)
            setattr(self, name, np.concatenate((array, added)))

    def past(self, series: Rows, values: Column) -> Past:
        """Return what series were before ``values``."""
        level = self.level[series]
        with np.errstate(invalid="ignore"):
            seen = self.seen[series]
            return Past(
                *(seen, level, self.sigma[series], values - level, self.top[series]),
                (seen > 0) & (seen % RECENT == 0),
                lambda rows: self.blocks[series[rows]],
            )

    def take(self, series: Rows, values: Column, stray: NDArray[np.bool_]) -> None:
        """Let values enter the level. Those that are not finite, and those that stray, do not; but many in a row are a new level."""
        self._turn += 1
        good = np.isfinite(values)
        strays = np.where(stray & good, self._strays[series] + 1, 0)
        self._strays[series] = strays
        anew = series[strays >= _ADOPT]
        if len(anew):
            self.seen[anew] = 0
            self.level[anew] = self.sigma[anew] = np.nan
            self.recent[anew] = self.offs[anew] = self.blocks[anew] = np.nan
            self._strays[anew] = 0
        good &= ~stray | (strays >= _ADOPT)
        if not good.all():
            series, values = series[good], values[good]
        if not len(series):
            return
        seen = self.seen[series]
        offs = np.abs(values - self.level[series])
        # The first has no level to be off from: it takes the place of the oldest later.
        self.offs[series, np.maximum(seen - 1, 0) % WINDOW] = offs
        self.recent[series, seen % RECENT] = values
        self.seen[series] = seen + 1
        level = self.level[series] = median_of(self.recent[series])
        self.top[series] = np.fmax(self.top[series], level)
        whole = (seen + 1) % RECENT == 0
        if whole.any():
            ended = series[whole]
            self.blocks[ended, :-1] = self.blocks[ended, 1:]
            self.blocks[ended, -1] = level[whole]
        young = seen < 2 * RECENT
        turn = young | (series % _TURNS == self._turn % _TURNS)
        due = series[turn]
        if len(due):
            self.sigma[due] = _TO_SIGMA * median_of(self.offs[due])


class Levels:
    """The levels of all quantities that rules ask for."""

    def __init__(self) -> None:
        self._levels: dict[str, Level] = {}
        self._series = 0

    def __getitem__(self, quantity: str) -> Level:
        level = self._levels.get(quantity)
        if level is None:
            level = self._levels[quantity] = Level()
            level.grow(self._series)
        return level

    def grow(self, series: int) -> None:
        """Make room for more series."""
        self._series = series
        for level in self._levels.values():
            level.grow(series)


def median_of(values: Column) -> Column:
    """Return the median of each row's numbers, the upper one of two; NaN sorts last and does not count."""
    values = np.sort(values, axis=1)
    count = values.shape[1] - np.isnan(values).sum(axis=1)
    middle: Column = values[np.arange(len(values)), count // 2]
    return middle
