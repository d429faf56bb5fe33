"""Values to colours, as ``protocol/charts/README.md`` says: the same table as ``src/charts/color-scale.ts``."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..protocol import contract_json
from .words import number_text

__all__ = [
    "NONFINITE",
    "ColorScale",
    "both_tones",
    "color_table",
    "hex_color",
    "legend",
    "low_magnitude",
    "mixed_stop",
    "one_tone",
    "palette",
]

_SLICES = 128
_MOST_SAMPLES = 4096


def palette(role: str) -> Any:
    """Return the colours of one role of ``protocol/charts/colors.json``."""
    return contract_json("charts/colors.json")[role]


def both_tones(colors: dict[str, list[str]], place: int) -> str:
    """Return the colour at a place of a palette for light and for dark pages, as CSS that follows the page."""
    return f"light-dark({colors['light'][place]}, {colors['dark'][place]})"


def one_tone(color: str, tone: str) -> str:
    """Return what :func:`both_tones` made for one of them; any other colour as it is."""
    if not color.startswith("light-dark("):
        return color
    light, dark = color.removeprefix("light-dark(").removesuffix(")").split(", ")
    return dark if tone == "dark" else light


NONFINITE: tuple[str, str] = tuple(palette("nonfinite"))
"""Colour of a non-finite cell and of the diagonals on it."""


def mixed_stop(stops: list[str], share: float) -> str:
    """Return the colour at a place of a ramp, 0 to 1, mixed of the two stops beside it."""
    place = share * (len(stops) - 1)
    below = min(math.floor(place), len(stops) - 2)
    pairs = zip(_channels(stops[below]), _channels(stops[below + 1]), strict=True)
    mixed = (math.floor(start + (end - start) * (place - below) + 0.5) for start, end in pairs)
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


@cache
def color_table(role: str) -> npt.NDArray[np.uint8]:
    """Return 256 colours, ``[256, 3]``, mixed linearly in sRGB from the stops of one role."""
    stops = np.array([_channels(color) for color in palette(role)], dtype=np.float64)
    place = np.arange(256) / 255 * (len(stops) - 1)
    below = np.minimum(np.floor(place).astype(int), len(stops) - 2)
    share = (place - below)[:, None]
    mixed = stops[below] + (stops[below + 1] - stops[below]) * share
    table: npt.NDArray[np.uint8] = np.floor(mixed + 0.5).astype(np.uint8)
    table.setflags(write=False)
    return table


class ColorScale:
    """A table of 256 colours over a domain rounded outwards.

    Parameters
    ----------
    extent : (float, float) or None
        Least and greatest finite value of all that shares the scale; None when nothing is finite.
    transform : {"linear", "log"}
        How values are spread; ``log`` is symmetric about zero.
    low_size : float, optional
        For ``log``: what ``low_magnitude`` finds in all that shares the scale.
    """

    def __init__(
        self, extent: tuple[float, float] | None, transform: str = "linear", low_size: float = math.nan
    ) -> None:
        low = _outwards(extent[0], up=False) if extent else 0.0
        high = _outwards(extent[1], up=True) if extent else 0.0
        self.empty = extent is None
        self.signed = low < 0 < high
        if self.signed:
            high = max(-low, high)
            low = -high
        self.domain = (low, high)
        self.transform = transform
        self.table = color_table("diverging" if self.signed else "sequential")
        top = max(abs(low), abs(high))
        self.decades = _decades(top, low_size)
        self._knee = top / 10**self.decades
        self._low = float(self._spread(np.float64(low)))
        self._span = float(self._spread(np.float64(high))) - self._low

    def entries(self, values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.int64]:
        """Return the table entry, 0 to 255, of every finite value; what stands for the others means nothing."""
        wide = values.astype(np.float64)
        if not self._span > 0:
            return np.full(wide.shape, 128, dtype=np.int64)
        with np.errstate(all="ignore"):
            place = np.clip((self._spread(wide) - self._low) / self._span, 0, 1)
        entries: npt.NDArray[np.int64] = np.floor(255 * np.nan_to_num(place) + 0.5).astype(np.int64)
        return entries

    def value_at(self, position: float) -> float:
        """Return the value at a place along the scale, 0 to 1."""
        if not self._span > 0:
            return self.domain[0]
        spread = self._low + position * self._span
        if self.transform == "linear":
            return spread
        return math.copysign(math.expm1(abs(spread)) * self._knee, spread)

    def color_at(self, position: float) -> str:
        """Return the colour at a place along the scale as ``#rrggbb``."""
        return hex_color(self.table[math.floor(255 * position + 0.5)])

    def _spread(self, values: Any) -> Any:
        if self.transform == "linear" or self._knee == 0:
            return values
        return np.sign(values) * np.log1p(np.abs(values) / self._knee)


def low_magnitude(values: npt.NDArray[np.floating[Any]]) -> float:
    """Return the magnitude that 5 in 100 of the finite values other than zero stay below, or NaN where there is none.

    Of more than 4,096 values evenly spaced ones are taken.
    """
    flat = values.ravel()
    sizes = np.abs(flat[:: max(1, math.ceil(len(flat) / _MOST_SAMPLES))].astype(np.float64))
    sizes = np.sort(sizes[np.isfinite(sizes) & (sizes > 0)])
    return float(sizes[math.floor(0.05 * (len(sizes) - 1))]) if len(sizes) else math.nan


def _decades(top: float, low: float) -> int:
    """Return how many decades a logarithmic scale spans below its greatest magnitude, 3 to 9."""
    if not (top > 0 and low > 0):
        return 3
    return min(9, max(3, math.ceil(math.log10(top / low) - 1e-9)))


def legend(
    scale: ColorScale, nonfinite: bool, own: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the params and the rows of the colour strip.

    Parameters
    ----------
    scale : ColorScale
        The shared scale.
    nonfinite : bool
        Whether the picture holds such cells, so that their colour is explained.
    own : bool
        Whether each picture has a scale of its own: the ends are then named, not numbered.
    """
    at = _stops(scale, own)
    texts = ["lowest", "highest"] if own else [number_text(scale.value_at(place), 3) for place in at]
    rows = [
        {"from": n / _SLICES, "to": min(1, (n + 1.5) / _SLICES), "color": scale.color_at((n + 0.5) / _SLICES)}
        for n in range(_SLICES)
    ]
    if nonfinite:
        rows.append({"from": -0.14, "to": -0.06, "color": NONFINITE[0]})
        at, texts = [-0.1, *at], ["not finite", *texts]
    return {"legendLow": -0.14 if nonfinite else 0, "legendAt": at, "legendText": texts}, rows


def hex_color(channels: npt.NDArray[np.uint8]) -> str:
    """Return three channels as ``#rrggbb``."""
    return "#" + "".join(f"{int(channel):02x}" for channel in channels)


def _stops(scale: ColorScale, own: bool) -> list[float]:
    if own:
        return [0, 1]
    if scale.empty:
        return []
    if scale.domain[0] == scale.domain[1]:
        return [0.5]
    if scale.transform == "log" and not scale.signed:
        return [0, 1 / 3, 2 / 3, 1]
    return [0, 0.25, 0.5, 0.75, 1]


def _channels(color: str) -> tuple[int, int, int]:
    value = int(color[1:], 16)
    return value >> 16, (value >> 8) & 255, value & 255


def _outwards(value: float, *, up: bool) -> float:
    """Return the value rounded away from the middle of the domain to 2 significant digits."""
    if value == 0:
        return 0.0
    power = math.floor(math.log10(abs(value))) - 1
    unit = value / 10**power if power >= 0 else value * 10**-power
    near = math.floor(unit + 0.5)
    whole = near if abs(unit - near) < 1e-9 else math.ceil(unit) if up else math.floor(unit)
    return float(whole * 10**power if power >= 0 else whole / 10**-power)
