"""Groups of tensors as lines: over steps or samples, or over layers at one step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .colors import NONFINITE
from .moment_compare import DASHES, Line, compare_lines, compared_title, line_colors, missing_words, run_words
from .moment_series import Series, SeriesGroups, largest, shown, smoothed, thinned
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
from .words import clean, integer_text, number_text

__all__ = ["OtherGroups", "axis", "legend_entries", "line_rows", "lines_picture", "wide"]

_MOST_POINTS = 600
_LEAST_POINTS = 100
_ALL_POINTS = 12_000
_MOST_ENTRIES = 14
_MOST_STRETCHES = 500


@dataclass(frozen=True)
class OtherGroups:
    """What another run has of the same question: None where it has nothing of it, or is not there."""

    name: str
    groups: SeriesGroups | None
    there: bool = True


def lines_picture(
    options: Mapping[str, Any],
    groups: SeriesGroups,
    width: int = 850,
    *,
    name: str = "",
    others: Sequence[OtherGroups] = (),
) -> Picture:
    """Draw one line a group.

    Parameters
    ----------
    options : mapping
        All options of the view ``moments``.
    groups : SeriesGroups
        What is grouped, as it is: of every step, since numbers may be shown against the first one.
    width : int
        Width of the whole picture in pixels.
    name : str
        The run.
    others : sequence of OtherGroups
        Runs that it is compared with, grouped in the same way.
    """
    by, samples = groups.by, options["x"] == "samples"
    every = groups.within(options["steps"])
    asked = [groups, *(other.groups for other in others)]
    lines = [line for run, each in enumerate(asked) if each for line in _lines(options, each, run)]
    between = 0
    if others and options["compare"] != "overlay":
        own, theirs = ([line for line in lines if (line.run > 0) is other] for other in (False, True))
        lines, between = compare_lines(own, theirs, options["compare"], samples)
    there = {
        run: clean(each.name) for run, each in enumerate(others, 1) if any(line.run == run for line in lines)
    }
    without = [each for run, each in enumerate(others, 1) if run not in there]
    missing = missing_words(
        [clean(each.name) for each in without if each.there],
        [clean(each.name) for each in without if not each.there],
    )
    if not lines:
        return Picture(options, capital(quantity_words(options)), missing)
    smooth = options["smoothing"] > 1
    most = max(_LEAST_POINTS, min(_MOST_POINTS, _ALL_POINTS // ((1 + smooth) * len(lines))))
    drawn = [replace(line, series=thinned(line.series, most)) for line in lines]
    colors = line_colors(drawn, by)
    names = [name, *(each.name for each in others)]
    named = [_names(line, by, names) for line in drawn]
    rows: list[dict[str, Any]] = []
    for place, line in enumerate(drawn):
        words = named[place][0]
        if line.faint is not None:
            faint = thinned(line.faint, most)
            rows += line_rows(
                faint, 2 * place, words, colors[place], samples=samples, opacity=0.25, run=line.run
            )
        rows += line_rows(
            line.series, 2 * place + 1, words, colors[place], samples=samples, opacity=1, run=line.run
        )
    xs = np.concatenate([line.x(samples) for line in drawn])
    finite = [row["value"] for row in rows if row["value"] is not None]
    scale, low, high = axis(options["transform"], finite)
    x0, x1 = wide(float(xs.min()), float(xs.max()))
    steps = SeriesGroups(by, [line.series for line in drawn]).steps
    span = f"steps {integer_text(steps[0])} to {integer_text(steps[-1])}"
    over = f" by {by_words(by)}" if by else " of all tensors"
    title = f"{capital(quantity_words(options))}{over}, {span}"
    key = legend_entries([label for _, label in named], colors)
    own_drawn = [line.series for line in drawn if line.run == 0]
    inside = {run: each.within(options["steps"]) for run, each in enumerate(asked) if each}
    return Picture(
        options=options,
        title=compared_title(title, options["compare"], list(there.values())) if there else title,
        caption=[
            *(left_out_words(every, SeriesGroups(by, own_drawn)) if own_drawn else []),
            *run_words(options, name, there, between),
            *missing,
            *(
                words
                for run, each in inside.items()
                for words in bad_words(each, clean(names[run]) if run else "")
            ),
            *(trust_words(every, options) if own_drawn else []),
            *option_words(options),
            *(["The axis is logarithmic on both sides of zero."] if scale == "symlog" else []),
        ],
        summary=_summary(
            axis_words(options, compared=bool(there)),
            lines,
            [words for words, _ in named],
            alone=not by and not there,
        ),
        template="moment-lines",
        texts={
            "xTitle": "samples" if samples else "step",
            "yTitle": axis_words(options, compared=bool(there)),
            "colorTitle": capital(by_words(by)),
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
            "nonfinite": [stretch for each in inside.values() for stretch in _stretches(each, samples)],
            "key": key,
        },
        size={"width": width - 230, "height": 280},
    )


def _lines(options: Mapping[str, Any], groups: SeriesGroups, run: int) -> list[Line]:
    """Return the largest groups of a run, shown as the options say."""
    every = groups.within(options["steps"])
    chosen = {each.key for each in largest(every, options["series"]).series}
    kept = replace(groups, series=[each for each in groups.series if each.key in chosen])
    raw = kept.each(lambda series: shown(series, options["show"])).within(options["steps"])
    if options["smoothing"] < 2:
        return [Line(run, series) for series in raw.series]
    smooth = kept.each(lambda series: smoothed(shown(series, options["show"]), options["smoothing"]))
    return [
        Line(run, series, faint)
        for series, faint in zip(smooth.within(options["steps"]).series, raw.series, strict=True)
    ]


def _names(line: Line, by: Sequence[str], runs: Sequence[str]) -> tuple[str, str]:
    """Return what a tip and the legend call a line: its group, and its run where there are several."""
    words = key_words(line.series.key, by)
    if len(runs) == 1:
        return words, words
    run = clean(runs[line.run])
    return f"{run} · {words}", words if by else run


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


def line_rows(
    series: Series, line: int, name: str, color: str, *, samples: bool, opacity: float, run: int = 0
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
            "dash": DASHES[run % len(DASHES)],
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


def _summary(quantity: str, lines: Sequence[Line], names: Sequence[str], *, alone: bool) -> str:
    """Say how the lines that moved the most went, and where the greatest value is."""
    moves = []
    greatest = (-math.inf, "")
    for series, name in zip([line.series for line in lines], names, strict=True):
        finite = np.flatnonzero(np.isfinite(series.value))
        if len(finite):
            start, end = float(series.value[finite[0]]), float(series.value[finite[-1]])
            steps = [integer_text(float(series.step[place])) for place in (finite[0], finite[-1])]
            most = finite[np.abs(series.value[finite]).argmax()]
            value, at = float(series.value[most]), integer_text(float(series.step[most]))
            where = "" if alone else f", {name}"
            greatest = max(
                greatest, (abs(value), f"The greatest is {number_text(value)}, at step {at}{where}.")
            )
            moves.append((abs(end - start), start, end, steps, name))
    sentences = []
    for _, start, end, (first, last), name in sorted(moves, key=lambda move: -move[0])[:2]:
        verb = "rose" if end > start else "fell" if end < start else "stayed"
        change = (
            f"from {number_text(start)} to {number_text(end)}" if end != start else f"at {number_text(end)}"
        )
        sentences.append(f"{capital(quantity)} {verb} {change} between step {first} and {last}, {name}.")
    return " ".join([*sentences, greatest[1]] if moves else sentences)
