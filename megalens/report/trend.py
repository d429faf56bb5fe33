"""A statistic of one flag per layer over steps, as lines or as layer × step cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..client import Run, trend
from .colors import NONFINITE, ColorScale, legend, low_magnitude
from .describe import flag_words, layer_words
from .picture import Picture
from .png import picture_url
from .points import thin
from .source import traced, windows
from .words import clean, integer_text, number_text

__all__ = ["STATISTIC_WORDS", "trend_picture"]

STATISTIC_WORDS = {
    "mean": "mean",
    "std": "standard deviation",
    "min": "minimum",
    "max": "maximum",
    "rms": "rms",
    "abs_mean": "mean magnitude",
    "nonfinite": "non-finite values",
}
_MOST_COLUMNS = 1200
_MOST_CELLS = 10_000


def trend_picture(
    run: Run,
    options: Mapping[str, Any],
    *,
    width: int = 850,
    progress: Callable[[float], object] | None = None,
) -> Picture:
    """Read and reduce what a trend shows.

    Parameters
    ----------
    run : Run
        The run.
    options : mapping
        All options of the view ``trend``.
    width : int
        Width of the whole picture in pixels.
    progress : callable, optional
        Called with the share that is read, 0 to 1; raise from it to cancel.
    """
    flag, phase = options["flag"], options["phase"]
    where = traced(run, flag, phase)
    part = where.part(options["part"])
    layers = where.layers_of(options["layers"])
    words = flag_words(run.flags, flag, part)
    first, last = options["steps"] or (-math.inf, math.inf)
    steps = [step for step in where.steps if first <= step <= last]
    name = STATISTIC_WORDS[options["statistic"]]
    if not where.steps:
        return Picture(options, f"{words}, {name} by step", [f"This run holds no {phase} step of {words}."])
    if not layers or not steps:
        what = f"layers {options['layers']}" if not layers else f"steps {first} to {last}"
        span = f"{layer_words(where.layers)} at steps {where.steps[0]} to {where.steps[-1]}"
        return Picture(
            options, f"{words}, {name} by step", [f"Nothing was traced of {what}: there are rows of {span}."]
        )
    pieces: list[pa.Table] = []
    bad: dict[tuple[int, int], int] = {}
    compressors: list[str] = []
    done = 0
    for table in windows(run, flag, part=part, phase=phase, layers=layers, steps=steps):
        pieces.append(trend(table, options["statistic"]))
        compressors += [
            text for text in pc.unique(table["compressor"]).to_pylist() if text not in compressors
        ]
        _count_bad(table, bad)
        done += len(pc.unique(table["step"]))
        if progress:
            progress(done / len(steps))
    result = pa.concat_tables(pieces)
    draw = _lines if options["kind"] == "lines" else _cells
    span = f"steps {integer_text(steps[0])} to {integer_text(steps[-1])}"
    title = f"{words}, {name} of {layer_words(layers)}, {span}"
    return draw(options, title, name, result, layers, bad, compressors, width)


def _lines(
    options: Mapping[str, Any],
    title: str,
    name: str,
    result: pa.Table,
    layers: Sequence[int],
    bad: Mapping[tuple[int, int], int],
    compressors: Sequence[str],
    width: int,
) -> Picture:
    rows: list[dict[str, Any]] = []
    drawn_from = 0
    finite: list[float] = []
    for layer in layers:
        chosen = result.filter(pc.equal(result["layer"], layer))
        steps, values = chosen["step"].to_numpy(), chosen["value"].to_numpy()
        kept = thin(values)
        drawn_from += len(values) if len(kept) < len(values) else 0
        for place in kept:
            value = float(values[place])
            rows.append(
                {"step": int(steps[place]), "layer": layer, "value": value if math.isfinite(value) else None}
            )
        finite += [float(value) for value in values[np.isfinite(values)]]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    scale, low, high = _axis(options["transform"], low, high)
    steps_shown = result["step"].to_numpy()
    return Picture(
        options=options,
        title=title,
        caption=_caption(compressors, options, bad, drawn_from, scale),
        summary=_summary(name, result, layers),
        template="trend-lines",
        texts={"xTitle": "step", "yTitle": name, "colorTitle": "layer", "yScale": scale},
        params={
            **_x_domain(int(steps_shown.min()), int(steps_shown.max())),
            "y0": low,
            "y1": high,
            "firstLayer": layers[0],
            "lastLayer": layers[-1],
        },
        datasets={
            "rows": rows,
            "nonfinite": [
                {"step": step, "layer": layer, "count": count, "color": NONFINITE[0]}
                for (step, layer), count in sorted(bad.items())[:2000]
            ],
        },
        size={"width": width - 125, "height": 260},
    )


def _cells(
    options: Mapping[str, Any],
    title: str,
    name: str,
    result: pa.Table,
    layers: Sequence[int],
    bad: Mapping[tuple[int, int], int],
    compressors: Sequence[str],
    width: int,
) -> Picture:
    steps, rows, values = (result[column].to_numpy() for column in ("step", "layer", "value"))
    first, last = int(steps.min()), int(steps.max())
    unique = np.unique(steps)
    spacing = int(np.diff(unique).min()) if len(unique) > 1 else 1
    spacing = max(spacing, math.ceil((last - first + 1) / _MOST_COLUMNS))
    columns = (last - first) // spacing + 1
    span = list(range(layers[0], layers[-1] + 1))
    matrix: npt.NDArray[np.float64] = np.full((len(span), columns), np.nan)
    missing = np.ones(matrix.shape, dtype=bool)
    place = (rows - layers[0], np.minimum((steps - first) // spacing, columns - 1))
    matrix[place] = values
    missing[place] = False
    finite = values[np.isfinite(values)]
    # By layer, then step: the order in which the live view takes its samples.
    low = low_magnitude(values[np.lexsort((steps, rows))]) if options["transform"] == "log" else math.nan
    scale = ColorScale(
        (float(finite.min()), float(finite.max())) if finite.size else None, options["transform"], low
    )
    not_finite = bool((~np.isfinite(matrix) & ~missing).any())
    strip, slices = legend(scale, not_finite)
    crowded = len(values) - int((~missing).sum())
    caption = _caption(compressors, options, bad, 0, "linear")
    if crowded:
        caption.append(
            f"One column stands for about {integer_text(spacing)} steps; the last one of them is drawn."
        )
    edges = {
        "x": first - spacing / 2,
        "x2": first + (columns - 0.5) * spacing,
        "y": span[0] - 0.5,
        "y2": span[-1] + 0.5,
    }
    return Picture(
        options=options,
        title=title,
        caption=caption,
        summary=_summary(name, result, layers),
        template="trend-heatmap",
        texts={"xTitle": "step", "yTitle": "layer", "legendTitle": name},
        params={"x0": edges["x"], "x1": edges["x2"], "y0": edges["y"], "y1": edges["y2"], **strip},
        datasets={"pictures": [{"url": picture_url(matrix, scale, missing), **edges}], "legend": slices},
        cells=result.select(["step", "layer", "value"]).to_pylist() if result.num_rows <= _MOST_CELLS else [],
        size={"width": width - 150, "height": min(360, max(90, 24 * len(span)))},
    )


def _count_bad(table: pa.Table, bad: dict[tuple[int, int], int]) -> None:
    counted = trend(table, "nonfinite")
    for row in counted.filter(pc.greater(counted["value"], 0)).to_pylist():
        bad[row["step"], row["layer"]] = int(row["value"])


def _axis(transform: str, low: float, high: float) -> tuple[str, float, float]:
    """Return the scale and a domain with a little room around the values."""
    if transform == "log" and low > 0:
        return "log", low / 1.1, high * 1.1
    room = (high - low or abs(high) or 1.0) * 0.05
    floor = max(0.0, low - room) if low >= 0 else low - room
    return ("symlog" if transform == "log" else "linear"), floor, high + room


def _x_domain(first: int, last: int) -> dict[str, float]:
    return {"x0": first, "x1": last} if last > first else {"x0": first - 0.5, "x1": first + 0.5}


def _caption(
    compressors: Sequence[str],
    options: Mapping[str, Any],
    bad: Mapping[tuple[int, int], int],
    drawn_from: int,
    scale: str,
) -> list[str]:
    name = STATISTIC_WORDS[options["statistic"]]
    lines = [
        f"{name[0].upper()}{name[1:]} over the finite traced values of each layer and step.",
        f"Compressor: {clean(', then '.join(compressors))}.",
    ]
    if scale == "symlog":
        lines.append("The axis is logarithmic on both sides of zero.")
    if drawn_from:
        lines.append(f"Drawn from {integer_text(drawn_from)} points, keeping every minimum and maximum.")
    if bad:
        marked = "; triangles mark their steps" if options["kind"] == "lines" else ""
        lines.append(f"{integer_text(sum(bad.values()))} traced values were not finite{marked}.")
    return lines


def _summary(name: str, result: pa.Table, layers: Sequence[int]) -> str:
    sentences = []
    for layer in dict.fromkeys((layers[0], layers[-1])):
        chosen = result.filter(pc.and_(pc.equal(result["layer"], layer), pc.is_finite(result["value"])))
        if chosen.num_rows:
            start, end = (float(chosen["value"][place].as_py()) for place in (0, chosen.num_rows - 1))
            first, last = (integer_text(chosen["step"][place].as_py()) for place in (0, chosen.num_rows - 1))
            verb = "rose" if end > start else "fell" if end < start else "stayed"
            change = (
                f"from {number_text(start)} to {number_text(end)}"
                if end != start
                else f"at {number_text(end)}"
            )
            sentences.append(
                f"{name[0].upper()}{name[1:]} {verb} {change} between step {first} and {last} in layer {layer}."
            )
    return " ".join(sentences)
