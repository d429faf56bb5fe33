"""Which values of a traced tensor enter a statistic, and how far their means are apart: the twin of ``src/aggregate/selection.ts``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..protocol import in_ranges, read_ranges

__all__ = ["ValueLayout", "Selection", "half_of", "half_width", "layout_of", "places_in", "selected"]

_Z = 1.959963984540054
_FEW = (12.706204736174698, 4.302652729749462, 3.182446305284263, 2.776445105197793, 2.570581835636314)


@dataclass(frozen=True)
class Selection:
    """Which values enter, and what is asked of their spread.

    Attributes
    ----------
    axes : sequence of str
        Axis names of one sample from ``hello``, such as ``["position", "feature"]``.
    positions : str
        ``all`` or ranges such as ``0-15,31``, counted from 0.
    vector : int
        Vector of a projection, counted from 0.
    interval : str
        ``none``, ``std`` or ``ci95``.
    """

    axes: Sequence[str] = ()
    positions: str = "all"
    vector: int = 0
    interval: str = "none"

    def takes_less(self, row: Mapping[str, Any]) -> bool:
        """Whether less than all values of a row enter, or their spread is asked for."""
        layout = layout_of(row, self.axes)
        return (
            layout.vectors > 1
            or self.interval != "none"
            or (layout.has_positions and self.positions.strip() != "all")
        )


@dataclass(frozen=True)
class ValueLayout:
    """How a row's values lie about the position axis: blocks before it, entries of it, values behind it."""

    outer: int
    length: int
    inner: int
    has_positions: bool
    vectors: int


def layout_of(row: Mapping[str, Any], axes: Sequence[str]) -> ValueLayout:
    """Say how the values of a row with ``shape`` and ``compressor`` lie."""
    shape = [int(size) for size in row["shape"]]
    at = list(axes).index("position") + 1 if "position" in axes else 0
    has_positions = 0 < at < len(shape)
    split = at if has_positions else 1
    rest = shape[split + 1 :] if has_positions else shape[split:]
    return ValueLayout(
        outer=math.prod(shape[:split]),
        length=shape[split] if has_positions else 1,
        inner=math.prod(rest),
        has_positions=has_positions,
        vectors=(shape[-1] if shape else 1) if str(row["compressor"]).startswith("Projection") else 0,
    )


def places_in(text: str, length: int) -> list[int]:
    """Return the places below ``length`` that a range text names."""
    ranges = read_ranges(text, "positions")
    return [place for place in range(length) if in_ranges(place, ranges)]


def selected(row: Mapping[str, Any], selection: Selection) -> npt.NDArray[np.float32]:
    """Return what is selected of a row as ``[units, values]``. A unit is one position of one sample, or one sample of a tensor without
    positions.
    """
    layout = layout_of(row, selection.axes)
    values = np.asarray(row["values"], dtype=np.float32).reshape(layout.outer, layout.length, layout.inner)
    if layout.has_positions:
        values = values[:, places_in(selection.positions, layout.length)]
    if layout.vectors:
        values = values[:, :, min(selection.vector, layout.vectors - 1) :: layout.vectors]
    return values.reshape(values.shape[0] * values.shape[1], values.shape[2])


def half_width(means: npt.NDArray[np.float64], interval: str) -> float:
    """Return half the width of the band about the mean of the units, or NaN where there are too few: see :func:`half_of`."""
    deviation = ((means - means.mean()) ** 2).sum() if len(means) else 0.0
    return float(half_of(np.array([len(means)]), np.array([deviation]), interval)[0])


def half_of(
    count: npt.NDArray[Any], deviation: npt.NDArray[np.float64], interval: str
) -> npt.NDArray[np.float64]:
    """Return half the width of the band about each mean of so many units, or NaN where there are too few.

    ``std`` is ``sqrt(D / n)``; ``ci95`` is ``t(n - 1) * s / sqrt(n)`` with ``s = sqrt(D / (n - 1))``. D is the sum of the squared deviations of
    the units' means. The interval takes units for independent. Neighbouring positions of a text are not: then the effective number of
    them is smaller and the true interval wider.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        if interval == "std":
            return np.where(count < 1, np.nan, np.sqrt(deviation / count))
        sizes, place = np.unique(count, return_inverse=True)
        quantile = np.array([_student_t(int(size) - 1) if size > 1 else math.nan for size in sizes])[place]
        found: npt.NDArray[np.float64] = quantile * np.sqrt(deviation / (count - 1)) / np.sqrt(count)
        return found


def _student_t(freedom: int) -> float:
    """Return the 0.975 quantile of Student's t: exact up to five degrees of freedom, then by Abramowitz and Stegun 26.7.5."""
    if freedom <= len(_FEW):
        return _FEW[freedom - 1]
    first = (_Z**3 + _Z) / 4
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    third = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384
    return _Z + first / freedom + second / freedom**2 + third / freedom**3
