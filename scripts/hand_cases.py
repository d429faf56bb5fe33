"""Golden cases whose questions are written by hand in their files: what the answer is, by numpy in float64 and by rules alone."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.moment_fixtures import plain, statistics_of

__all__ = ["hand_cases"]

Case = dict[str, Any]

# Student's t at 97.5 %, by degrees of freedom (Abramowitz and Stegun, table 26.10, here to ten digits).
_T95 = {1: 12.70620474, 2: 4.302652730, 3: 3.182446305, 4: 2.776445105, 5: 2.570581836, 6: 2.446911851}


def hand_cases(root: Path) -> dict[str, Any]:
    """Return the files by their path under ``root``, with the questions that they hold and the answers that these have."""
    return {
        str(path.relative_to(root)): answered(json.loads(path.read_text(encoding="utf-8")))
        for folder, answered in _ANSWERED.items()
        for path in sorted(root.glob(folder))
    }


def _reduced(case: Case) -> Case:
    """Each statistic of each step and layer, over all finite values, as float32 holds them."""
    expected: dict[str, list[Case]] = {name: [] for name in case["expected"]}
    for step, layer in _places(case):
        values = np.concatenate([_floats(row) for row in _rows_of(case, step, layer)])
        finite = values[np.isfinite(values)].tolist()
        found = statistics_of(finite) | {
            "abs_mean": statistics.fmean(map(abs, finite)) if finite else math.nan,
            "nonfinite": float(len(values) - len(finite)),
        }
        for name, points in expected.items():
            points.append(plain({"step": step, "layer": layer, "value": found[name]}))
    return {**case, "expected": expected}


def _banded(case: Case) -> Case:
    """The mean of the chosen values, and the spread of the units that they are of: positions where there are any, else samples."""
    expected: dict[str, list[Case]] = {"none": [], "std": [], "ci95": []}
    for step, layer in _places(case):
        chosen, units = list[float](), list[float]()
        for row in _rows_of(case, step, layer):
            values = _floats(row).reshape(row["shape"])
            if "position" not in case["axes"]:
                parts = [sample.ravel() for sample in values]
            else:
                first, _, last = case["positions"].partition("-")
                at = slice(None) if first == "all" else slice(int(first), int(last) + 1)
                projected = case["compressor"].startswith("Projection")
                vectors = slice(case["vector"], case["vector"] + 1) if projected else slice(None)
                parts = [position for sample in values[:, at, vectors] for position in sample]
            for part in parts:
                finite = part[np.isfinite(part)].tolist()
                chosen += finite
                units += [statistics.fmean(finite)] if finite else []
        point = {"step": step, "layer": layer, "value": statistics.fmean(chosen)}
        expected["none"].append(point)
        expected["std"].append({**point, "half": statistics.pstdev(units), "units": len(units)})
        half = _T95[len(units) - 1] * statistics.stdev(units) / math.sqrt(len(units))
        expected["ci95"].append({**point, "half": half, "units": len(units)})
    return {**case, "expected": expected}


def _thinned(cases: Case) -> Case:
    return {**cases, "thinned": [{**case, **_kept(case)} for case in cases["thinned"]]}


def _kept(case: Case) -> Case:
    """Of each span of steps the first, last, least and greatest; both ends of each stretch; and where values cease to be finite."""
    steps, values = case["steps"], [float(value) for value in case["values"]]
    everything = range(len(steps))
    spans, kept = case["points"] // 4, set(everything)
    if len(steps) > case["points"]:
        width = (steps[-1] - steps[0]) / spans
        kept = {0, len(steps) - 1}
        for span in range(spans):
            inside = [at for at in everything if min(int((steps[at] - steps[0]) / width), spans - 1) == span]
            finite = [at for at in inside if math.isfinite(values[at])]
            kept |= {*inside[:1], *inside[-1:]}
            kept |= {pick(finite, key=values.__getitem__) for pick in (min, max) if finite}
        kept |= {end for start in case["starts"] for end in (start - 1, start)}
        kept |= {
            at for at in everything[1:] if math.isfinite(values[at - 1]) and not math.isfinite(values[at])
        }
    order = sorted(kept)
    return {"kept": order, "begins": [order.index(start) for start in case["starts"]]}


def _places(case: Case) -> list[tuple[int, int]]:
    return sorted({(row["step"], row["layer"]) for row in case["rows"]})


def _rows_of(case: Case, step: int, layer: int) -> list[Case]:
    return [row for row in case["rows"] if (row["step"], row["layer"]) == (step, layer)]


def _floats(row: Case) -> NDArray[np.float64]:
    return np.array([float(value) for value in row["values"]], np.float32).astype(np.float64)


_ANSWERED: dict[str, Callable[[Case], Case]] = {
    "aggregate/*.json": _reduced,
    "bands/*.json": _banded,
    "lines/thinned.json": _thinned,
}
