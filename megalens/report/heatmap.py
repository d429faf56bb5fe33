"""The heatmap of one flag: position × tile at a step, one picture for each layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..client import Run
from ..client.query import Query
from .captions import error_words, measured_errors, rank_words
from .colors import ColorScale, legend, low_magnitude
from .describe import compressor_words, flag_words, layer_words
from .matrix import Axes, axes_of, slice_of
from .picture import Frame, Picture
from .png import picture_url
from .source import Traced, traced
from .words import clean, integer_text, number_text

__all__ = ["MOST_FRAMES", "heatmap_picture"]

MOST_FRAMES = 24
"""Most steps that a page's slider holds; fewer when they would not fit."""

_TOKENS = "InputTokens"
_COLUMNS = [
    "step",
    "layer",
    "rank",
    "micro_batch",
    "compressor",
    "source_shape",
    "shape",
    "values",
    "nan_count",
    "inf_count",
    "compression_error",
]
_CONTROLS = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


def heatmap_picture(run: Run, options: Mapping[str, Any], *, room: int = 0, width: int = 850) -> Picture:
    """Read and shape what a heatmap shows.

    Parameters
    ----------
    run : Run
        The run.
    options : mapping
        All options of the view ``heatmap``.
    room : int
        Bytes of page for other steps than the one of the options. As many are read as fit, spread evenly over the run.
    width : int
        Width of the whole picture in pixels.
    """
    flag, phase, pass_ = options["flag"], options["phase"], options["pass"]
    where = traced(run, flag, phase, pass_=pass_, rank=options["rank"])
    part = where.part(options["part"])
    layers = where.layers_of(options["layers"])
    step = where.nearest(options["step"])
    words = flag_words(run.flags, flag, part, pass_)
    if step is None:
        return Picture(options, words, [_why_empty(run, flag, phase, words)])
    if not layers:
        text = f"Layers {options['layers']} were not traced: there are rows of {layer_words(where.layers)}."
        return Picture(options, words, [text], steps=where.steps)

    def read(at: int) -> list[dict[str, Any]]:
        return _rows(where.only(run.tensors(flag, layers, part, at, phase, pass_)))

    rows = read(step)
    if not rows:
        text = f"{words} has no row of {layer_words(layers)} at step {integer_text(step)}."
        return Picture(options, words, [text], steps=where.steps)
    info = run.flags.get(flag)
    names = list(info["axes"]) if info else ["position", "feature"]
    axes = axes_of(rows[0], names)

    def frame(at: int, found: Sequence[Mapping[str, Any]]) -> Frame:
        cuts = {
            int(row["layer"]): slice_of(row, axes_of(row, names), options["sample"], options["head"])
            for row in found
        }
        return Frame(at, cuts)

    shown = frame(step, rows)
    if not any(matrix.size for matrix in shown.matrices.values()):
        text = f"Only the shape and the counts of {words} were kept. Choose a compressor that keeps values."
        return Picture(options, words, [text], steps=where.steps)
    count = min(MOST_FRAMES, room // max(1, shown.page_bytes))
    others = [at for at in _spread(where.steps, step, count) if at != step]
    frames = [frame(at, found) for at in others if (found := read(at))]
    frames = sorted([*frames, shown], key=lambda each: each.step)
    measured: dict[int, tuple[int, float, str]] = {}
    if any(math.isnan(row["compression_error"]) for row in rows):
        query = Query.of(flag=flag, part=part, phase=phase, pass_=pass_, steps=(None, step))
        measured = measured_errors(run, replace(query, measured=True), layers, where)
    extra = [*error_words(rows, measured), *rank_words(where, layers, options["rank"], run.layout)]
    return _draw(run, options, shown, frames, rows, axes, where, words, width, extra)


def _draw(
    run: Run,
    options: Mapping[str, Any],
    shown: Frame,
    frames: Sequence[Frame],
    rows: Sequence[Mapping[str, Any]],
    axes: Axes,
    where: Traced,
    words: str,
    width: int,
    extra: Sequence[str],
) -> Picture:
    matrices = shown.matrices
    own = options["scale"] == "own" and len(matrices) > 1
    shared = _scale(list(matrices.values()), options["transform"])
    scales = {
        layer: _scale([matrix], options["transform"]) if own else shared for layer, matrix in matrices.items()
    }
    bad = sum(int((~np.isfinite(matrix)).sum()) for matrix in matrices.values())
    strip, slices = legend(next(iter(scales.values())), bad > 0, own)
    lines = math.ceil(len(matrices) / max(1, (width - 90) // 250))
    across = math.ceil(len(matrices) / lines)
    tall = max(matrix.shape[0] for matrix in matrices.values())
    wide = max(matrix.shape[1] for matrix in matrices.values())
    height = (300 if axes.transposed else 360) if len(matrices) == 1 else 170 if len(matrices) <= 4 else 120
    tokens = _token_texts(run, options, shown.step, int(rows[0]["rank"]))
    title = [words, compressor_words(rows[0]["compressor"], rows[0]["shape"][-1])]
    if axes.heads > 1:
        title.append(f"head {min(options['head'], axes.heads - 1)}")
    title += [layer_words(list(matrices)), f"step {integer_text(shown.step)}"]
    return Picture(
        options=options,
        title=", ".join(title),
        caption=[
            *_caption(options, shown, rows, axes, bad, {scale.decades for scale in scales.values()}),
            *extra,
        ],
        summary=_summary(shown, axes, bad),
        template="heatmap",
        texts={"xTitle": axes.x, "yTitle": axes.y, "legendTitle": "value"},
        params={
            "x0": -0.5,
            "x1": wide - 0.5,
            "y0": -0.5,
            "y1": tall - 0.5,
            "tokens": [text.translate(_CONTROLS) for text in tokens],
            "headers": {str(layer): _header(layer, scale, own) for layer, scale in scales.items()},
            **strip,
        },
        datasets={
            "pictures": [
                {
                    "layer": layer,
                    "url": picture_url(matrix, scales[layer]),
                    "x": -0.5,
                    "x2": matrix.shape[1] - 0.5,
                    "y": -0.5,
                    "y2": matrix.shape[0] - 0.5,
                }
                for layer, matrix in matrices.items()
            ],
            "legend": slices,
        },
        size={"width": (width - 130 - 44 * across) // across, "height": height, "columns": across},
        frames=frames,
        steps=where.steps,
    )


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the first micro-batch of each layer in the rows of a step, by layer."""
    order = pc.sort_indices(
        table, [("layer", "ascending"), ("micro_batch", "ascending"), ("rank", "ascending")]
    )
    found: dict[int, dict[str, Any]] = {}
    heads = table.select(["layer"]).take(order)["layer"].to_pylist()
    for place, layer in zip(order.to_pylist(), heads, strict=True):
        if layer not in found:
            row = table.slice(place, 1)
            found[layer] = {name: row[name][0].as_py() for name in _COLUMNS if name != "values"}
            found[layer]["values"] = row["values"].combine_chunks().flatten().to_numpy()
    return list(found.values())


def _spread(steps: Sequence[int], step: int, count: int) -> list[int]:
    """Return at most ``count`` steps, spread evenly, with ``step`` among them, in order."""
    if len(steps) <= count:
        return list(steps)
    if count <= 1:
        return [step]
    places = {round(n * (len(steps) - 1) / (count - 1)) for n in range(count)}
    chosen = sorted(steps[place] for place in places)
    if step not in chosen:
        chosen[min(range(len(chosen)), key=lambda n: abs(chosen[n] - step))] = step
    return sorted(chosen)


def _extent(matrices: Sequence[Any]) -> tuple[float, float] | None:
    finite = [matrix[np.isfinite(matrix)] for matrix in matrices]
    kept = [values for values in finite if values.size]
    if not kept:
        return None
    return float(min(values.min() for values in kept)), float(max(values.max() for values in kept))


def _scale(matrices: Sequence[Any], transform: str) -> ColorScale:
    low = (
        low_magnitude(np.concatenate([each.ravel() for each in matrices])) if transform == "log" else math.nan
    )
    return ColorScale(_extent(matrices), transform, low)


def _header(layer: int, scale: ColorScale, own: bool) -> str:
    low, high = (number_text(end, 3) for end in scale.domain)
    return f"layer {layer}, {low} to {high}" if own and not scale.empty else f"layer {layer}"


def _caption(
    options: Mapping[str, Any],
    shown: Frame,
    rows: Sequence[Mapping[str, Any]],
    axes: Axes,
    bad: int,
    decades: set[int],
) -> list[str]:
    first = rows[0]
    sample = min(options["sample"], axes.samples - 1) + 1
    batch = first["source_shape"][0] if first["source_shape"] else 1
    lines = [f"Compressor: {clean(first['compressor'])}.", f"Sample {sample} of {batch}."]
    if first["micro_batch"] > 0:
        lines.append(f"Micro-batch {first['micro_batch']}.")
    if options["step"] is not None and options["step"] != shown.step:
        lines.append(f"Step {integer_text(options['step'])} was not traced; this is the nearest one.")
    if options["transform"] == "log":
        over = f" over {min(decades)} decades" if len(decades) == 1 else ""
        lines.append(f"Colours are logarithmic{over}, symmetric about zero.")
    if bad:
        lines.append(f"{integer_text(bad)} cells are not finite (hatched).")
    nan, inf = (sum(row[name] for row in rows) for name in ("nan_count", "inf_count"))
    if nan + inf:
        lines.append(
            f"The traced tensors held {integer_text(nan)} NaN and {integer_text(inf)} infinite values."
        )
    return lines


def _summary(shown: Frame, axes: Axes, bad: int) -> str:
    parts = []
    extent = _extent(list(shown.matrices.values()))
    if extent:
        low, high = (number_text(end) for end in extent)
        parts.append(f"At step {integer_text(shown.step)} values run from {low} to {high}.")
        sizes = {layer: np.where(np.isfinite(m), np.abs(m), -1) for layer, m in shown.matrices.items()}
        layer = max(sizes, key=lambda each: float(sizes[each].max(initial=-1)))
        row, column = np.unravel_index(int(sizes[layer].argmax()), sizes[layer].shape)
        down = f", {axes.y} {row}" if axes.y else ""
        value = number_text(float(shown.matrices[layer][row, column]))
        parts.append(
            f"The largest magnitude, {value}, is in layer {layer} at {axes.x} {integer_text(float(column))}{down}."
        )
    if bad:
        parts.append(f"{integer_text(bad)} cells are not finite.")
    return " ".join(parts)


def _token_texts(run: Run, options: Mapping[str, Any], step: int, rank: int) -> list[str]:
    """Return the texts of the positions of the chosen sample, of the replica that a rank belongs to; empty when they were not traced."""
    if options["flag"] == _TOKENS or _TOKENS not in run.flags:
        return []
    table = run.tensors(_TOKENS, None, None, step, options["phase"])
    replicas = {place["rank"]: place["dp"] for place in (run.layout.get("ranks", []) if run.layout else [])}
    for row in table.select(["shape", "labels", "rank"]).to_pylist():
        ours = row["rank"] == rank or replicas.get(row["rank"]) == replicas.get(rank)
        if row["labels"] and ours:
            length = row["shape"][1] if len(row["shape"]) > 1 else len(row["labels"])
            sample = min(options["sample"], (row["shape"][0] if row["shape"] else 1) - 1)
            return list(row["labels"][sample * length : (sample + 1) * length])
    return []


def _why_empty(run: Run, flag: str, phase: str, words: str) -> str:
    info = run.flags.get(flag)
    if info is not None and not info["layers"]:
        reason = info.get("reason")
        return f"This model has no {words}{f': {reason}' if reason else '.'}"
    return f"This run holds no {phase} step of {words}."
