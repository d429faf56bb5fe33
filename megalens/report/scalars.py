"""Loss and its friends over steps or time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..client import Run
from ..client.trailing_mean import trailing_mean
from .colors import NONFINITE
from .picture import Picture
from .points import thin
from .words import THIN_SPACE, integer_text, number_text

__all__ = ["scalars_picture"]


def scalars_picture(run: Run, options: Mapping[str, Any], *, width: int = 850) -> Picture:
    """Read and shape what the scalars view shows.

    Parameters
    ----------
    run : Run
        The run.
    options : mapping
        All options of the view ``scalars``.
    width : int
        Width of the whole picture in pixels.
    """
    table = run.scalars()
    known = sorted(set(pc.unique(table["name"]).to_pylist()))
    wanted = options["names"]
    names = list(wanted) if wanted is not None else ([name for name in known if "loss" in name] or known)
    absent = [name for name in names if name not in known]
    names = [name for name in names if name in known]
    title = ", ".join(names) or "Scalars"
    first, last = options["steps"] or (-math.inf, math.inf)
    steps = table["step"].to_numpy()
    table = table.filter(pa.array((steps >= first) & (steps <= last)))
    lacking = f"This run has no scalar named {' or '.join(absent)}." if absent else ""
    if not names or table.num_rows == 0:
        span = f"There are {', '.join(known)}." if known else "No scalar was reported."
        return Picture(
            options, title, [f"{lacking or 'No scalar falls into these steps.'} {span}" if known else span]
        )
    return _draw(table, options, names, title, lacking, width)


def _draw(
    table: pa.Table, options: Mapping[str, Any], names: list[str], title: str, lacking: str, width: int
) -> Picture:
    rows: list[dict[str, Any]] = []
    units: list[str] = []
    summary: list[str] = []
    spans: list[float] = []
    drawn_from = bad = 0
    lowest = math.inf
    for name in names:
        chosen = table.filter(pc.equal(table["name"], name)).sort_by(
            [("step", "ascending"), ("time", "ascending")]
        )
        if chosen.num_rows == 0:
            continue
        unit = chosen["unit"][chosen.num_rows - 1].as_py()
        if unit not in units:
            units.append(unit)
        # Vega's times are in milliseconds.
        x = (
            chosen["step"].to_numpy().astype(float)
            if options["x"] == "step"
            else chosen["time"].to_numpy() * 1000
        )
        values = chosen["value"].to_numpy()
        smooth = options["smoothing"] > 1
        series = (
            {"faint": values, "line": trailing_mean(values, options["smoothing"])}
            if smooth
            else {"line": values}
        )
        for kind, numbers in series.items():
            kept = thin(numbers)
            drawn_from += len(numbers) if len(kept) < len(numbers) and kind == "line" else 0
            rows += [
                {
                    "x": float(x[place]),
                    "name": name,
                    "value": float(numbers[place]) if np.isfinite(numbers[place]) else None,
                    "panel": units.index(unit),
                    "kind": kind,
                    "color": "",
                }
                for place in kept
            ]
        gaps = np.flatnonzero(~np.isfinite(values))
        bad += len(gaps)
        rows += [
            {
                "x": float(x[g]),
                "name": name,
                "value": None,
                "panel": units.index(unit),
                "kind": "nonfinite",
                "color": NONFINITE[0],
            }
            for g in gaps[:500]
        ]
        spans += [float(x.min()), float(x.max())]
        finite = values[np.isfinite(values)]
        if finite.size:
            lowest = min(lowest, float(finite.min()))
            ends = f"from {number_text(float(finite[0]))} to {number_text(float(finite[-1]))} {unit}".rstrip()
            summary.append(f"{name} went {ends}.")
    if not rows:
        return Picture(options, title, [lacking or "No scalar falls into these steps."])
    caption = [lacking] if lacking else []
    if options["smoothing"] > 1:
        caption.append(
            f"Lines are the trailing mean of {options['smoothing']} points; the numbers themselves are faint."
        )
    if drawn_from:
        caption.append(f"Drawn from {integer_text(drawn_from)} points, keeping every minimum and maximum.")
    if bad:
        caption.append(f"Values that are not finite: {integer_text(bad)}; marks along the top show where.")
    scale = "linear" if options["transform"] == "linear" else "log" if lowest > 0 else "symlog"
    if scale == "symlog":
        caption.append("The axis is logarithmic on both sides of zero.")
    low, high = min(spans), max(spans)
    shown = table.filter(pc.is_in(table["name"], pa.array(names)))["step"].to_pylist()
    by_time = options["x"] == "time"
    return Picture(
        options=options,
        title=f"{title}, steps {integer_text(min(shown))} to {integer_text(max(shown))}",
        caption=caption,
        summary=" ".join(summary),
        template="scalars",
        texts={
            "xTitle": "time (UTC)" if by_time else "step",
            "xLabel": "utcFormat(datum.value, '%H:%M:%S')"
            if by_time
            else f"join(split(datum.label, ','), '{THIN_SPACE}')",
            "yScale": scale,
        },
        params={
            "x0": low if high > low else low - 0.5,
            "x1": high if high > low else high + 0.5,
            "headers": {str(place): unit or "no unit" for place, unit in enumerate(units)},
        },
        datasets={"rows": rows},
        size={"width": width - 70, "height": 220 if len(units) == 1 else 150},
    )
