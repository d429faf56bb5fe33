"""Lines of one run beside those of others: over them, minus them, or over one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .colors import both_tones, mixed_stop, palette
from .moment_series import Column, Series
from .words import clean, integer_text

__all__ = ["DASHES", "Line", "compare_lines", "compared_title", "line_colors", "missing_words", "run_words"]

DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3], [12, 4], [4, 2], [1, 2], [10, 2, 2, 2])
"""Dashes of the runs of a comparison, pixels; those of ``src/views/moments``."""
_DASH_WORDS = ("solid", "dashed", "dotted", "dashes and dots")


@dataclass(frozen=True)
class Line:
    """One group of one run.

    Attributes
    ----------
    run : int
        Place of its run: 0 is the report's own.
    series : Series
        What is drawn.
    faint : Series, optional
        The numbers that a trailing mean is over.
    """

    run: int
    series: Series
    faint: Series | None = None

    def x(self, samples: bool) -> Column:
        """Return where its points lie."""
        return self.series.samples if samples else self.series.step


def compare_lines(
    own: Sequence[Line], others: Sequence[Line], how: str, samples: bool
) -> tuple[list[Line], int]:
    """Return what other runs' lines are minus, or over, this run's line of the same key, and how many of their points lay between two of this run's.

    The twin of ``src/views/moments/compare.ts``: between two points there is what lies between them; before the first and behind the last there is nothing.
    """
    bases = {line.series.key: line for line in own}
    found: list[Line] = []
    between = 0
    for line in others:
        base = bases.get(line.series.key)
        if base is None:
            continue
        there, x = base.x(samples), line.x(samples)
        order = np.argsort(there, kind="stable")
        beside = np.interp(x, there[order], base.series.value[order], left=np.nan, right=np.nan)
        between += int((~np.isin(x, there) & ~np.isnan(beside)).sum())
        with np.errstate(all="ignore"):
            value = line.series.value - beside if how == "difference" else line.series.value / beside
        value = value if how == "difference" else np.where(beside == 0, np.nan, value)
        found.append(Line(line.run, replace(line.series, value=value, error=np.zeros(len(value)))))
    return found, between


def compared_title(title: str, compare: str, names: Sequence[str]) -> str:
    """Return a title with what runs are minus or over this one put before it."""
    listed = ", ".join(names)
    if compare == "difference":
        return f"Difference, {listed} minus this run: {title}"
    return f"Ratio, {listed} over this run: {title}" if compare == "ratio" else title


def missing_words(empty: Sequence[str], absent: Sequence[str]) -> list[str]:
    """Say which runs have nothing to draw, and which could not be opened."""
    return [
        *([f"Nothing to compare in {', '.join(empty)}."] if empty else []),
        *(f"The run {name} could not be opened here, so it is not drawn." for name in absent),
    ]


def run_words(options: Mapping[str, Any], name: str, there: Mapping[int, str], between: int) -> list[str]:
    """Say which runs are drawn and how they are told apart.

    Parameters
    ----------
    options : mapping
        All options of the view ``moments``.
    name : str
        The report's own run.
    there : mapping
        Names of the others that have something to draw, by their places.
    between : int
        Points that were compared with what lies between two of this run's.
    """
    listed = ", ".join(there.values())
    lines = []
    if there and options["compare"] == "overlay":
        dashes = [
            f"{each}: {_DASH_WORDS[run] if run < len(_DASH_WORDS) else 'other dashes'}."
            for run, each in there.items()
        ]
        lines.append(" ".join([f"{clean(name)} (this run): solid.", *dashes]))
    elif there:
        lines.append(f"{listed} {'minus' if options['compare'] == 'difference' else 'over'} this run.")
    if between:
        lines.append(
            f"Where this run has no such point, what lies between its neighbours is taken: {integer_text(between)} times."
        )
    return lines


def line_colors(lines: Sequence[Line], by: Sequence[str]) -> list[str]:
    """Return a colour for each line, for light and for dark pages.

    Groups keep their colour over all runs; one group in several runs takes a colour a run. A few groups without order are told apart by a categorical palette, layers and many groups by
    an ordered scale.
    """
    names, ramp = (palette(role) for role in ("categorical", "layers"))
    keys = list(dict.fromkeys(line.series.key for line in lines))
    most = len(names["light"])
    if len(keys) == 1:
        return [both_tones(names, line.run % most) for line in lines]
    colors = dict(zip(keys, _group_colors(keys, by, names, ramp), strict=True))
    return [colors[line.series.key] for line in lines]


def _group_colors(
    keys: Sequence[tuple[Any, ...]],
    by: Sequence[str],
    names: dict[str, list[str]],
    ramp: dict[str, list[str]],
) -> list[str]:
    count = len(keys)
    at = list(by).index("layer") if "layer" in by else -1
    layered: list[Any] = [key[at] if at >= 0 else None for key in keys]
    layers = [layer for layer in layered if layer is not None]

    # Mixed of two stops, so that no two lines and no two entries of the legend share a colour.
    def stop(share: float) -> str:
        return both_tones({tone: [mixed_stop(stops, share)] for tone, stops in ramp.items()}, 0)

    # One line a layer, and perhaps one of what lies outside of the layers.
    if len(layers) > 1 and len(set(layers)) == len(layers) >= count - 1:
        low, high = min(layers), max(layers)
        outside = both_tones(names, len(names["light"]) - 1)
        return [outside if layer is None else stop((layer - low) / (high - low)) for layer in layered]
    if count <= len(names["light"]):
        return [both_tones(names, place) for place in range(count)]
    return [stop(place / (count - 1)) for place in range(count)]
