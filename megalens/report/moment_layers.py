"""Groups of tensors over layers, at one step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .colors import NONFINITE
from .moment_compare import Line, line_colors
from .moment_lines import axis, legend_entries, line_rows, wide
from .moment_series import Series, SeriesGroups, largest
from .moment_words import (
    axis_words,
    bad_words,
    by_words,
    capital,
    key_words,
    left_out_words,
    option_words,
    quantity_words,
    trust_words,
)
from .picture import Picture
from .words import integer_text, number_text

__all__ = ["layers_picture"]


def layers_picture(
    options: Mapping[str, Any], groups: SeriesGroups, step: float, width: int = 850
) -> Picture:
    """Draw each layer at one step: one line, or one bar a layer, for every other group.

    Parameters
    ----------
    options : mapping
        All options of the view ``moments``.
    groups : SeriesGroups
        Grouped by ``layer`` first, then by what else makes a group; shown as the options say, with the rows of ``step`` only.
    step : float
        Which step is drawn.
    width : int
        Width of the whole picture in pixels.
    """
    by = list(groups.by[1:])
    every = _over_layers(groups, by)
    drawn = largest(every, options["series"])
    names = [key_words(series.key, by) for series in drawn.series]
    colors = line_colors([Line(0, series) for series in drawn.series], drawn.by)
    bars = options["marks"] == "bars"
    layers = np.concatenate([series.step for series in drawn.series])
    rows = [
        row
        for place, series in enumerate(drawn.series)
        for row in line_rows(series, 2 * place + 1, names[place], colors[place], samples=False, opacity=1)
    ]
    finite = [row["value"] for row in rows if row["value"] is not None]
    scale, low, high = axis(
        options["transform"], [*finite, 0.0] if bars and options["transform"] == "linear" else finite
    )
    base = low if scale == "log" else max(low, min(0.0, high))
    x0, x1 = wide(float(layers.min()), float(layers.max()))
    where = f", step {integer_text(step)}"
    beside = f" and {by_words(by)}" if by else ""
    key = legend_entries(names, colors)
    return Picture(
        options=options,
        title=f"{capital(quantity_words(options))} by layer{beside}{where}",
        caption=[
            *left_out_words(every, drawn),
            *bad_words(groups),
            *trust_words(groups, options),
            *option_words({**options, "smoothing": 0}),
        ],
        summary=_summary(options, drawn, names),
        template="moment-lines",
        texts={
            "xTitle": "layer",
            "yTitle": axis_words(options),
            "colorTitle": capital(by_words(by)) if by else "Tensors",
            "yScale": scale,
        },
        params={
            "x0": x0 - 0.5 * bars,
            "x1": x1 + 0.5 * bars,
            "y0": low,
            "y1": high,
            "keyText": [entry["name"] for entry in key],
        },
        datasets={
            "rows": [] if bars else rows,
            "bars": _bars(rows, len(names), base) if bars else [],
            "nonfinite": [
                {"x": float(layer), "x2": float(layer), "count": 1, "color": NONFINITE[0]}
                for layer in sorted({float(x) for series in every.series for x in series.step[series.bad]})
            ],
            "key": key,
        },
        size={"width": width - 230, "height": 280},
    )


def _over_layers(groups: SeriesGroups, by: Sequence[str]) -> SeriesGroups:
    """Turn one row of each (layer, rest) into one series of each rest, with layers for its steps. What has no layer is left out."""
    found: dict[tuple[Any, ...], list[Series]] = {}
    for series in groups.series:
        if series.key[0] is not None:
            found.setdefault(series.key[1:], []).append(
                replace(series, step=np.array([float(series.key[0])]))
            )
    joined = []
    for key, parts in found.items():
        columns = ("step", "samples", "value", "count", "nonfinite", "error", "scaled")
        joined.append(
            Series(key, **{name: np.concatenate([getattr(part, name) for part in parts]) for name in columns})
        )
    return SeriesGroups(by, joined)


def _bars(rows: Sequence[Mapping[str, Any]], several: int, base: float) -> list[dict[str, Any]]:
    share = 0.8 / several
    return [
        {
            "x": row["x"] - 0.4 + share * ((row["line"] - 1) // 2),
            "x2": row["x"] - 0.4 + share * ((row["line"] - 1) // 2 + 1),
            "value": row["value"],
            "base": base,
            "name": row["name"],
            "color": row["color"],
        }
        for row in rows
        if row["value"] is not None
    ]


def _summary(options: Mapping[str, Any], groups: SeriesGroups, names: Sequence[str]) -> str:
    best = (-math.inf, 0.0, 0.0, "")
    for series, name in zip(groups.series, names, strict=True):
        for layer, value in zip(series.step, series.value, strict=True):
            if np.isfinite(value) and abs(value) > best[0]:
                best = (abs(float(value)), float(value), float(layer), name)
    if best[0] < 0:
        return ""
    of = f", {best[3]}" if len(groups.series) > 1 else ""
    return f"{capital(axis_words(options))} is greatest in layer {integer_text(best[2])}{of}: {number_text(best[1])}."
