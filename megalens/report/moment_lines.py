"""Groups of tensors as lines: over steps or samples, or over layers at one step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .colors import NONFINITE, both_tones, mixed_stop, palette
from .moment_series import Series, SeriesGroups, largest, shown, smoothed, thinned
from .moment_words import (
    axis_words,
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
from .words import integer_text, number_text

__all__ = ["axis", "legend_entries", "line_colors", "line_rows", "lines_picture", "wide"]

_MOST_POINTS = 600
_LEAST_POINTS = 100
_ALL_POINTS = 12_000
_MOST_ENTRIES = 14
_MOST_STRETCHES = 500


def lines_picture(options: Mapping[str, Any], groups: SeriesGroups, width: int = 850) -> Picture:
    """Draw one line a group.

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
    chosen = {each.key for each in largest(every, options["series"]).series}
    kept = replace(groups, series=[each for each in groups.series if each.key in chosen])
    raw = kept.each(lambda series: shown(series, options["show"])).within(options["steps"])
    smooth = options["smoothing"] > 1
    whole = (
        kept.each(lambda series: smoothed(shown(series, options["show"]), options["smoothing"])).within(
            options["steps"]
        )
        if smooth
        else raw
    )
    most = max(_LEAST_POINTS, min(_MOST_POINTS, _ALL_POINTS // ((1 + smooth) * max(1, len(whole.series)))))
    drawn = whole.each(lambda series: thinned(series, most))
    faint = raw.each(lambda series: thinned(series, most)) if smooth else SeriesGroups(groups.by, [])
    samples = options["x"] == "samples"
    colors = line_colors(drawn)
    rows: list[dict[str, Any]] = []
    for place, series in enumerate(drawn.series):
        name = key_words(series.key, groups.by)
        if smooth:
            rows += line_rows(
                faint.series[place], 2 * place, name, colors[place], samples=samples, opacity=0.25
            )
        rows += line_rows(series, 2 * place + 1, name, colors[place], samples=samples, opacity=1)
    xs = np.concatenate([each.samples if samples else each.step for each in drawn.series])
    finite = [row["value"] for row in rows if row["value"] is not None]
    scale, low, high = axis(options["transform"], finite)
    x0, x1 = wide(float(xs.min()), float(xs.max()))
    steps = drawn.steps
    span = f"steps {integer_text(steps[0])} to {integer_text(steps[-1])}"
    over = f" by {by_words(groups.by)}" if groups.by else " of all tensors"
    key = legend_entries([key_words(each.key, groups.by) for each in drawn.series], colors)
    return Picture(
        options=options,
        title=f"{capital(quantity_words(options))}{over}, {span}",
        caption=[
            *left_out_words(every, drawn),
            *trust_words(every, options),
            *option_words(options),
            *(["The axis is logarithmic on both sides of zero."] if scale == "symlog" else []),
        ],
        summary=_summary(options, whole),
        template="moment-lines",
        texts={
            "xTitle": "samples" if samples else "step",
            "yTitle": axis_words(options),
            "colorTitle": capital(by_words(groups.by)),
            "yScale": scale,
        },
        params={
            "x0": x0,
            "x1": x1,
            "y0": low,
            "y1": high,
            "keyText": [entry["name"] for entry in key],
        },
        datasets={
            "rows": rows,
            "nonfinite": _stretches(every, samples),
            "key": key,
        },
        size={"width": width - 230, "height": 280},
    )


def axis(transform: str, finite: Sequence[float]) -> tuple[str, float, float]:
    """Return the scale and a domain with a little room around the values; without values it is 0 to 1."""
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if transform == "log" and low > 0:
        return "log", *((low / 2, high * 2) if low == high else (low / 1.1, high * 1.1))
    room = (high - low or abs(high) or 1.0) * 0.05
    floor = max(0.0, low - room) if low >= 0 else low - room
    return ("symlog" if transform == "log" else "linear"), floor, high + room


def wide(low: float, high: float) -> tuple[float, float]:
    """Widen a range that is one point."""
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def line_colors(groups: SeriesGroups) -> list[str]:
    """Return a colour for each group, for light and for dark pages: a categorical one for a few groups without order, else one of an ordered scale."""
    names, ramp = (palette(role) for role in ("categorical", "layers"))
    count = len(groups.series)
    at = list(groups.by).index("layer") if "layer" in groups.by else -1
    keys: list[Any] = [series.key[at] if at >= 0 else None for series in groups.series]
    layers = [layer for layer in keys if layer is not None]

    # Mixed of two stops, so that no two lines and no two entries of the legend share a colour.
    def stop(share: float) -> str:
        return both_tones({tone: [mixed_stop(stops, share)] for tone, stops in ramp.items()}, 0)

    # One line a layer, and perhaps one of what lies outside of the layers.
    if len(layers) > 1 and len(set(layers)) == len(layers) >= count - 1:
        low, high = min(layers), max(layers)
        outside = both_tones(names, len(names["light"]) - 1)
        return [outside if layer is None else stop((layer - low) / (high - low)) for layer in keys]
    if count <= len(names["light"]):
        return [both_tones(names, place) for place in range(count)]
    return [stop(place / (count - 1)) for place in range(count)]


def line_rows(
    series: Series, line: int, name: str, color: str, *, samples: bool, opacity: float
) -> list[dict[str, Any]]:
    """Return one line as rows of the template: a value that is not finite breaks it, and what stands alone is a dot."""
    finite = np.isfinite(series.value)
    before, after = np.concatenate(([False], finite[:-1])), np.concatenate((finite[1:], [False]))
    alone = finite & ~before & ~after
    x = series.samples if samples else series.step
    return [
        {
            "x": float(x[at]),
            "line": line,
            "name": name,
            "value": float(series.value[at]) if finite[at] else None,
            "color": color,
            "opacity": opacity,
            "dash": [1, 0],
            "alone": bool(alone[at]),
        }
        for at in range(len(x))
    ]


def _stretches(groups: SeriesGroups, samples: bool) -> list[dict[str, Any]]:
    """Return the stretches of steps with values that are not finite, over all groups."""
    counts: dict[float, float] = {}
    where: dict[float, float] = {}
    for series in groups.series:
        x = series.samples if samples else series.step
        where.update(zip(series.step.tolist(), x.tolist(), strict=True))
        for at in np.flatnonzero(series.bad):
            step, count = float(series.step[at]), float(series.nonfinite[at])
            counts[step] = counts.get(step, 0) + (count if count > 0 else 1)
    found: list[dict[str, Any]] = []
    runs_on = False
    for step in sorted(where):
        if step not in counts:
            runs_on = False
        elif runs_on:
            found[-1]["x2"] = where[step]
            found[-1]["count"] += counts[step]
        else:
            found.append({"x": where[step], "x2": where[step], "count": counts[step], "color": NONFINITE[0]})
            runs_on = True
    return found[:_MOST_STRETCHES]


def legend_entries(names: Sequence[str], colors: Sequence[str]) -> list[dict[str, Any]]:
    """Name the lines: all, or some that are spread over all."""
    entries = [(entry_text(name), color) for name, color in dict(zip(names, colors, strict=True)).items()]
    if len(entries) > _MOST_ENTRIES:
        places: npt.NDArray[np.int64] = np.unique(
            np.linspace(0, len(entries) - 1, _MOST_ENTRIES).round().astype(int)
        )
        entries = [entries[place] for place in places]
    return [{"place": place, "name": name, "color": color} for place, (name, color) in enumerate(entries)]


def _summary(options: Mapping[str, Any], groups: SeriesGroups) -> str:
    """Say how the groups that moved the most went, and where the greatest value is."""
    moves = []
    greatest = (-math.inf, "")
    for series in groups.series:
        finite = np.flatnonzero(np.isfinite(series.value))
        if len(finite):
            start, end = float(series.value[finite[0]]), float(series.value[finite[-1]])
            steps = [integer_text(float(series.step[place])) for place in (finite[0], finite[-1])]
            most = finite[np.abs(series.value[finite]).argmax()]
            value, at = float(series.value[most]), integer_text(float(series.step[most]))
            where = f", {key_words(series.key, groups.by)}" if groups.by else ""
            greatest = max(
                greatest, (abs(value), f"The greatest is {number_text(value)}, at step {at}{where}.")
            )
            moves.append((abs(end - start), start, end, steps, key_words(series.key, groups.by)))
    sentences = []
    for _, start, end, (first, last), name in sorted(moves, key=lambda move: -move[0])[:2]:
        verb = "rose" if end > start else "fell" if end < start else "stayed"
        change = (
            f"from {number_text(start)} to {number_text(end)}" if end != start else f"at {number_text(end)}"
        )
        sentences.append(
            f"{capital(axis_words(options))} {verb} {change} between step {first} and {last}, {name}."
        )
    return " ".join([*sentences, greatest[1]] if moves else sentences)
