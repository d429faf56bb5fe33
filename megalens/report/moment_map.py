"""Groups of tensors as cells, one row a group and one column a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .colors import ColorScale, legend, low_magnitude
from .moment_series import Series, SeriesGroups, largest, shown
from .moment_words import (
    axis_words,
    bad_words,
    by_words,
    capital,
    entry_text,
    key_words,
    left_out_words,
    option_words,
    quantity_words,
    trust_words,
)
from .picture import Picture
from .png import picture_url
from .words import integer_text

__all__ = ["map_picture"]

_MOST_COLUMNS = 1200
_MOST_ROWS = 200
_MOST_CELLS = 10_000


def map_picture(options: Mapping[str, Any], groups: SeriesGroups, width: int = 850) -> Picture:
    """Draw one row a group.

    Parameters
    ----------
    options : mapping
        All options of the view ``moments``.
    groups : SeriesGroups
        What is grouped, as it is: of every step, since numbers may be shown against the first one.
    width : int
        Width of the whole picture in pixels.
    """
    every = groups.within(options["steps"])
    drawn = largest(every, _MOST_ROWS)
    keys = [series.key for series in drawn.series]
    cells = groups.each(lambda series: shown(series, options["show"])).within(options["steps"])
    rows = [series for series in cells.series if series.key in keys]
    steps = drawn.steps
    start, end = int(steps[0]), int(steps[-1])
    spacing = int(np.diff(steps).min()) if len(steps) > 1 else 1
    spacing = max(spacing, math.ceil((end - start + 1) / _MOST_COLUMNS))
    columns = (end - start) // spacing + 1
    matrix: npt.NDArray[np.float64] = np.full((len(rows), columns), np.nan)
    missing = np.ones(matrix.shape, dtype=bool)
    crowded = _fill(matrix, missing, rows, start, spacing)
    values = np.concatenate([series.value for series in rows])
    finite = values[np.isfinite(values)]
    low = low_magnitude(values) if options["transform"] == "log" else math.nan
    extent = (float(finite.min()), float(finite.max())) if finite.size else None
    scale = ColorScale(extent, options["transform"], low)
    strip, slices = legend(scale, bool((~np.isfinite(matrix) & ~missing).any()))
    names = [key_words(series.key, groups.by) for series in rows]
    edges = {
        "x": start - spacing / 2,
        "x2": start + (columns - 0.5) * spacing,
        "y": -0.5,
        "y2": len(rows) - 0.5,
    }
    held = [
        {"step": int(step), "layer": place, "name": names[place], "value": float(value)}
        for place, series in enumerate(rows)
        for step, value in zip(series.step, series.value, strict=True)
    ]
    caption = left_out_words(every, drawn)
    if crowded:
        caption.append(
            f"One column stands for about {integer_text(spacing)} steps; of these the value farthest from zero is drawn, before it one that is not finite."
        )
    return Picture(
        options=options,
        title=f"{capital(quantity_words(options))} by {by_words(groups.by)}, steps {integer_text(start)} to {integer_text(end)}",
        caption=[*caption, *bad_words(every), *trust_words(every, options), *option_words(options)],
        summary=_summary(options, rows, names),
        template="moment-map",
        texts={"xTitle": "step", "yTitle": by_words(groups.by), "legendTitle": axis_words(options)},
        params={
            "x0": edges["x"],
            "x1": edges["x2"],
            "y0": edges["y"],
            "y1": edges["y2"],
            "rowAt": list(range(len(rows))),
            "rowText": [entry_text(name) for name in names],
            **strip,
        },
        datasets={"pictures": [{"url": picture_url(matrix, scale, missing), **edges}], "legend": slices},
        cells=held if len(held) <= _MOST_CELLS else [],
        size={"width": width - 250, "height": min(480, max(90, 16 * len(rows)))},
    )


def _fill(
    matrix: npt.NDArray[np.float64],
    missing: npt.NDArray[np.bool_],
    rows: list[Series],
    start: int,
    spacing: int,
) -> int:
    """Write every value into its column, the smallest first, so that no spike is lost; return how many share one."""
    shared = 0
    for row, series in enumerate(rows):
        place = np.minimum((series.step.astype(np.int64) - start) // spacing, matrix.shape[1] - 1)
        # A value over the finite ones of a tensor that has others too is not drawn as if it were whole; one of no data is no cell.
        value = np.where(series.bad, np.nan, series.value)
        there = series.bad | np.isfinite(value)
        size = np.where(np.isfinite(value), np.abs(value), np.inf)
        order = np.argsort(size, kind="stable")
        order = order[there[order]]
        matrix[row, place[order]] = value[order]
        missing[row, place[order]] = False
        shared += len(place) - len(np.unique(place))
    return shared


def _summary(options: Mapping[str, Any], rows: list[Series], names: list[str]) -> str:
    greatest = None
    for series, name in zip(rows, names, strict=True):
        size = np.where(np.isfinite(series.value), np.abs(series.value), -np.inf)
        at = int(size.argmax())
        if np.isfinite(size[at]) and (greatest is None or size[at] > greatest[0]):
            greatest = (size[at], name, float(series.step[at]))
    if greatest is None:
        return ""
    return f"{capital(axis_words(options))} is greatest in {greatest[1]} at step {integer_text(greatest[2])}."
