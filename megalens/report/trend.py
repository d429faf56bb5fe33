"""A statistic of one flag per layer over steps, as lines or as layer × step cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..client import Run, trend
from ..client.selection import Selection, layout_of, places_in
from .captions import rank_words
from .colors import NONFINITE, ColorScale, legend, low_magnitude
from .describe import flag_words, layer_words, list_words
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
    flag, phase, pass_ = options["flag"], options["phase"], options["pass"]
    where = traced(run, flag, phase, pass_=pass_, rank=options["rank"])
    part = where.part(options["part"])
    layers = where.layers_of(options["layers"])
    words = flag_words(run.flags, flag, part, pass_)
    info = run.flags.get(flag)
    selection = Selection(
        info["axes"] if info else (), options["positions"], options["vector"], options["interval"]
    )
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
    newest: dict[str, Any] = {}
    for table in windows(run, flag, where, part=part, phase=phase, pass_=pass_, layers=layers, steps=steps):
        if not table.num_rows:
            continue
        newest = table.select(["shape", "compressor"]).slice(table.num_rows - 1).to_pylist()[0]
        if not places_in(options["positions"], layout_of(newest, selection.axes).length) and (
            layout_of(newest, selection.axes).has_positions
        ):
            last_place = layout_of(newest, selection.axes).length - 1
            text = f"There is no position {options['positions']}; they go from 0 to {last_place}."
            return Picture(options, f"{words}, {name} by step", [text])
        pieces.append(trend(table, options["statistic"], selection))
        compressors += [
            text for text in pc.unique(table["compressor"]).to_pylist() if text not in compressors
        ]
        _count_bad(table, bad, selection)
        done += len(pc.unique(table["step"]))
        if progress:
            progress(done / len(steps))
    if not pieces:
        return Picture(options, f"{words}, {name} by step", [f"This run holds no {phase} step of {words}."])
    result = pa.concat_tables(pieces)
    extra = [
        *_selection_words(newest, selection),
        *_interval_words(options, result),
        *rank_words(where, layers, options["rank"], run.layout),
    ]
    draw = _lines if options["kind"] == "lines" else _cells
    span = f"steps {integer_text(steps[0])} to {integer_text(steps[-1])}"
    title = f"{words}, {name} of {layer_words(layers)}, {span}"
    picture = draw(options, title, name, result, layers, bad, compressors, width)
    return replace(picture, caption=[*picture.caption, *extra])


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
    band: list[dict[str, Any]] = []
    drawn_from = 0
    finite: list[float] = []
    for layer in layers:
        chosen = result.filter(pc.equal(result["layer"], layer))
        steps, values = chosen["step"].to_numpy(), chosen["value"].to_numpy()
        half = chosen["half"].to_numpy() if "half" in chosen.column_names else None
        kept = thin(values)
        drawn_from += len(values) if len(kept) < len(values) else 0
        for place in kept:
            value = float(values[place])
            if half is not None:
                edges = (value - float(half[place]), value + float(half[place]))
                known = all(math.isfinite(edge) for edge in edges)
                finite += edges if known else ()
                low_edge, high_edge = edges if known else (None, None)
                band.append({"step": int(steps[place]), "layer": layer, "low": low_edge, "high": high_edge})
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
            "band": band,
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


def _count_bad(table: pa.Table, bad: dict[tuple[int, int], int], selection: Selection) -> None:
    counted = trend(table, "nonfinite", selection)
    for row in counted.filter(pc.greater(counted["value"], 0)).to_pylist():
        bad[row["step"], row["layer"]] = int(row["value"])


def _selection_words(row: Mapping[str, Any], selection: Selection) -> list[str]:
    """Say which values enter where that is not all of them."""
    if not selection.takes_less(row):
        return []
    layout = layout_of(row, selection.axes)
    lines = []
    if layout.vectors > 1:
        vector = min(selection.vector, layout.vectors - 1)
        lines.append(f"Vector {vector} of {layout.vectors}, counted from 0.")
    if selection.positions.strip() != "all":
        taken = places_in(selection.positions, layout.length)
        several = "s" if len(taken) != 1 else ""
        lines.append(
            f"Position{several} {list_words(taken)} of {integer_text(layout.length)}, counted from 0."
            if layout.has_positions
            else "These tensors have no position axis; all of their values enter."
        )
    return lines


def _interval_words(options: Mapping[str, Any], result: pa.Table) -> list[str]:
    """Say what a band is, or why there is none."""
    if options["interval"] == "none":
        return []
    if options["statistic"] != "mean" or options["kind"] != "lines":
        return ["Bands are about the lines of a mean; choose mean and lines for one."]
    units = int(result["units"][result.num_rows - 1].as_py())
    if options["interval"] == "std":
        return [f"Bands: one standard deviation over positions and samples (n = {integer_text(units)})."]
    if units < 2:
        return ["One position or sample has no confidence interval."]
    return [
        f"Bands: 95 % confidence interval of the mean, ± t · s / √n over positions and samples (n = {integer_text(units)}). "
        "Neighbouring positions are not independent: the true interval is wider."
    ]


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
        marked = "; marks along the top show where" if options["kind"] == "lines" else ""
        lines.append(f"Values that were not finite: {integer_text(sum(bad.values()))}{marked}.")
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
