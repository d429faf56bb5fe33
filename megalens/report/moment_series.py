"""Groups of tensors over steps, as the explorer draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..client.moments.grouping.shaping import shape_values
from .points import thin

__all__ = ["Series", "SeriesGroups", "largest", "shown", "smoothed", "thinned"]

# A series is the only group of its values.
_ALONE = np.zeros(1, np.int64)

Column = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One group over steps; every array has one entry a step.

    Attributes
    ----------
    key : tuple
        One value for each column of the grouping; None where names do not have it.
    step, samples : ndarray
        Ascending steps; samples consumed, -1 where nobody said.
    value : ndarray
        The statistic or the ratio; NaN where there is none.
    count, nonfinite : ndarray
        Finite values, and NaN and infinite ones; NaN where it is not known how many of them there are.
    error : ndarray
        How far the value may be off by the rounding of raw sums.
    scaled : ndarray
        Where a loss scale that is not known may be in the values.
    """

    key: tuple[Any, ...]
    step: Column
    samples: Column
    value: Column
    count: Column
    nonfinite: Column
    error: Column
    scaled: npt.NDArray[np.bool_]

    @property
    def bad(self) -> npt.NDArray[np.bool_]:
        """Steps with values that are not finite, or of which that is not known."""
        found: npt.NDArray[np.bool_] = (self.nonfinite != 0) | np.isinf(self.value)
        return found

    def at(self, places: npt.NDArray[Any]) -> Series:
        """Return the steps at these places."""
        columns = ("step", "samples", "value", "count", "nonfinite", "error", "scaled")
        return replace(self, **{name: getattr(self, name)[places] for name in columns})


@dataclass(frozen=True)
class SeriesGroups:
    """Groups in natural order of their keys.

    Attributes
    ----------
    by : sequence of str
        The columns of the keys.
    series : sequence of Series
        One for each group.
    groups_total, steps_total : int
        How many there were before the largest groups were chosen and steps were left out; 0 where none were.
    """

    by: Sequence[str]
    series: Sequence[Series]
    groups_total: int = 0
    steps_total: int = 0

    @property
    def steps(self) -> Column:
        """Every step of any group, ascending."""
        every: Column = np.unique(np.concatenate([np.empty(0), *(each.step for each in self.series)]))
        return every

    def each(self, change: Callable[[Series], Series]) -> SeriesGroups:
        """Return the groups with every series changed; empty ones are left out."""
        changed = [change(each) for each in self.series]
        return replace(self, series=[each for each in changed if len(each.step)])

    def within(self, steps: Sequence[float] | None) -> SeriesGroups:
        """Return the groups between two steps, both included; all of them where there is no range."""
        if not steps:
            return self.each(lambda series: series)
        first, last = steps
        return self.each(
            lambda series: series.at(np.flatnonzero((series.step >= first) & (series.step <= last)))
        )


def largest(groups: SeriesGroups, most: int) -> SeriesGroups:
    """Keep the groups of the greatest magnitudes; those with values that are not finite, or not known, come first of all."""
    if len(groups.series) <= most:
        return groups

    def size(series: Series) -> float:
        if series.bad.any():
            return math.inf
        finite = np.abs(series.value[np.isfinite(series.value)])
        return float(finite.max()) if len(finite) else -1.0

    sizes = [size(series) for series in groups.series]
    stay = set(sorted(range(len(sizes)), key=lambda place: (-sizes[place], place))[:most])
    return replace(groups, series=[each for place, each in enumerate(groups.series) if place in stay])


def shown(series: Series, show: str) -> Series:
    """Return values as they are, over the first finite one of the series, minus it, or the change from it in per cent. Over a first value of 0 there is nothing."""
    value, scale = shape_values(_ALONE, series.value, show, 0)
    return replace(series, value=value, error=series.error * scale)


def smoothed(series: Series, points: int) -> Series:
    """Return trailing means over so many steps; what is not finite stays."""
    return replace(series, value=shape_values(_ALONE, series.value, "raw", points)[0])


def thinned(series: Series, most: int) -> Series:
    """Return about so many steps, with every minimum and maximum that a picture of that width could show, and both ends of every stretch that is not finite."""
    if len(series.step) <= most:
        return series
    gap = ~np.isfinite(series.value) | series.bad
    edge = gap & ~(np.concatenate(([False], gap[:-1])) & np.concatenate((gap[1:], [False])))
    return series.at(np.union1d(thin(series.value, most), np.flatnonzero(edge)))
