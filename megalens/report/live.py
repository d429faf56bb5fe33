"""What a page carries to make a picture live: the compiled chart, its rows by column, and the steps of a heatmap."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .colors import palette
from .picture import Frame, Picture
from .theme import PAGE_LIGHT

__all__ = ["live_view", "pack_frame", "payload"]

_DIGITS = 6


def payload(views: Sequence[Mapping[str, Any]]) -> str:
    """Return the JSON text of all live views, safe inside a script element."""
    text = json.dumps(
        {"format": 1, "layers": palette("layers"), "views": views}, separators=(",", ":"), allow_nan=False
    )
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def live_view(picture: Picture, figure: str, frames: Sequence[Frame]) -> dict[str, Any]:
    """Return what makes one figure live.

    Parameters
    ----------
    picture : Picture
        What is drawn.
    figure : str
        Id of the figure in the page.
    frames : sequence of Frame
        The steps of a heatmap that the page holds.
    """
    params = picture.params
    y = [params["y0"], params["y1"]] if "y0" in params else [0, 1]
    view: dict[str, Any] = {
        "id": figure,
        "template": picture.template,
        "spec": picture.vega(PAGE_LIGHT, hover=False, data=False),
        "datasets": {name: _columns(rows) for name, rows in picture.datasets.items()},
        "extent": {"x": [params["x0"], params["x1"]], "y": y},
        "axes": {"x": picture.texts.get("xTitle", ""), "y": picture.texts.get("yTitle", "")},
    }
    if picture.cells:
        view["cells"] = _columns(picture.cells)
    if frames:
        view.update(
            scale=picture.options.get("scale", "own"),
            transform=picture.options["transform"],
            tokens=params["tokens"],
            frames=[pack_frame(frame) for frame in frames],
        )
    return view


def pack_frame(frame: Frame) -> dict[str, Any]:
    """Return a step's matrices as half floats, which keep three digits: high bytes, then low bytes, deflated, base64."""
    values = np.concatenate(
        [np.asarray(matrix, dtype=np.float32).ravel() for matrix in frame.matrices.values()]
    )
    finite = np.abs(values[np.isfinite(values)])
    greatest = float(finite.max()) if finite.size else 0.0
    # The greatest value takes the upper end of the range, so that small ones keep their digits.
    exponent = 15 - math.frexp(greatest)[1] if greatest > 0 else 0
    with np.errstate(over="ignore"):
        halves = np.ldexp(values.astype(np.float64), exponent).astype(np.float16).view(np.uint16)
    planes = np.concatenate([(halves >> 8).astype(np.uint8), (halves & 255).astype(np.uint8)])
    return {
        "step": frame.step,
        "exponent": exponent,
        "matrices": [
            {"layer": layer, "rows": matrix.shape[0], "columns": matrix.shape[1]}
            for layer, matrix in frame.matrices.items()
        ],
        "data": base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode("ascii"),
    }


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {}
    return {name: _column([_short(row.get(name)) for row in rows]) for name in rows[0]}


def _column(values: list[Any]) -> Any:
    """Return the values, or where few texts or lists say everything, these and their places."""
    if not all(isinstance(value, str | list) for value in values):
        return values
    texts = [json.dumps(value) for value in values]
    distinct = list(dict.fromkeys(texts))
    if len(distinct) * 4 > len(values):
        return values
    places = {text: place for place, text in enumerate(distinct)}
    return {"distinct": [json.loads(text) for text in distinct], "places": [places[text] for text in texts]}


def _short(value: Any) -> Any:
    """Return a float with as many digits as a picture can show; whatever is not finite has no place in JSON."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if value == int(value) and abs(value) < 1e15:
            return int(value)
        return float(f"{value:.{_DIGITS}g}") if abs(value) < 1e9 else value
    return value
