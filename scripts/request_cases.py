"""Requests that must be taken, and others with the member at fault, for the fixtures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

_GROUPS = {"stat": "grad", "statistic": "l2", "by": ["layer"]}
_TREND = {"flag": "HiddenStates", "statistic": "rms"}
_BAND = {"axes": ["position", "feature"], "positions": "0-15,31", "vector": 0, "interval": "ci95"}
_FILTER = {"name": "mlp", "layer": "0-3,7", "role": ["output"]}
_LAST = 2**53 - 1

_TAKEN: list[tuple[str, dict[str, Any]]] = [
    ("StreamRequest", {}),
    ("StreamRequest", {"flag": "QKV_mat_mul", "part": "q", "phase": "train", "pass": "backward", "rank": "lowest", "layers": [-1, 3]}),
    ("StreamRequest", {"steps": [3, _LAST], "rank": 0, "measured": True, "peaks": 16, "limit_bytes": 1}),
    ("StreamRequest", {"where": {"generation": 1, "state": "done"}, "columns": ["position"]}),
    ("TrendRequest", _TREND),
    ("TrendRequest", {**_TREND, "selection": _BAND, "steps": [1, 9], "points": 800}),
    ("ScalarsRequest", {"names": ["loss"], "points": 1}),
    ("ScalarsRequest", {"names": None}),
    ("MomentRowsRequest", {"stats": ["param", "grad"], "where": _FILTER, "steps": None, "limit_rows": 1}),
    ("MomentGroupsRequest", {**_GROUPS, "pattern": None, "where": {}, "ratio": "none", "mixed": False, "show": "raw", "smoothing": 0, "steps": [2, 2]}),
    ("MomentGroupsRequest", {**_GROUPS, "by": [], "series": 40, "points": 2000}),
    ("TimelineRequest", {"first": 0, "window": [0, 12.5], "columns": 800, "ranks": "0-3", "path": True, "find": "mlp"}),
    ("TimelineRequest", {"find": "mlp", "found_from": 200, "sums": [0, 12.5], "sums_ranks": "1"}),
    ("PipelineStepsRequest", {"last": 4, "replica": 0}),
    ("AlarmCountRequest", {"settings": {"rules": {"jump": {"threshold": 8}}}}),
    ("StatisticsRequest", {"path": "logs/raw"}),
]  # fmt: skip

_REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("StreamRequest", {"rank": -1}, "rank"),
    ("StreamRequest", {"rank": "highest"}, "rank"),
    ("StreamRequest", {"layers": "0-3"}, "layers"),
    ("StreamRequest", {"layers": [0, -2]}, "layers.1"),
    ("StreamRequest", {"steps": [1]}, "steps"),
    ("StreamRequest", {"steps": [1, True]}, "steps.1"),
    ("StreamRequest", {"where": {"position": 1.5}}, "where.position"),
    ("StreamRequest", {"colour": "red"}, "colour"),
    ("TrendRequest", {"flag": "HiddenStates"}, "statistic"),
    ("TrendRequest", {**_TREND, "selection": {**_BAND, "positions": "first"}}, "selection.positions"),
    ("TrendRequest", {**_TREND, "selection": {"axes": []}}, "selection.positions"),
    ("ScalarsRequest", {"names": "loss"}, "names"),
    ("ScalarsRequest", {"points": 0}, "points"),
    ("MomentRowsRequest", {"stats": []}, "stats"),
    ("MomentRowsRequest", {"stats": ["nothing"]}, "stats.0"),
    ("MomentRowsRequest", {"stats": ["grad"], "where": {"layer": 3}}, "where.layer"),
    ("MomentRowsRequest", {"stats": ["grad"], "where": {"colour": "red"}}, "where.colour"),
    ("MomentGroupsRequest", {"stat": "grad", "statistic": "l2"}, "by"),
    ("MomentGroupsRequest", {**_GROUPS, "by": [r"layers\.(\d+)"]}, "by.0"),
    ("MomentGroupsRequest", {**_GROUPS, "by": ["layer", "layer"]}, "by"),
    ("MomentGroupsRequest", {**_GROUPS, "statistic": "median"}, "statistic"),
    ("MomentGroupsRequest", {**_GROUPS, "show": "squared"}, "show"),
    ("MomentGroupsRequest", {**_GROUPS, "smoothing": -1}, "smoothing"),
    ("MomentGroupsRequest", {**_GROUPS, "mixed": 1}, "mixed"),
    ("TimelineRequest", {"window": [1]}, "window"),
    ("TimelineRequest", {"sums": [1]}, "sums"),
    ("TimelineRequest", {"found_from": -1}, "found_from"),
    ("TimelineRequest", {"find": "x" * 201}, "find"),
    ("AlarmCountRequest", {}, "settings"),
]


def request_cases(protocol: Path) -> list[dict[str, Any]]:
    """Return every case, checked by a library against the schemas in ``protocol``."""
    schema, views = (
        json.loads((protocol / f"{name}.schema.json").read_text(encoding="utf-8"))
        for name in ("requests", "views")
    )
    registry = Registry().with_resource("views.schema.json", Resource.from_contents(views))
    cases = [
        *({"request": name, "value": value} for name, value in _TAKEN),
        *({"request": name, "value": value, "refused": field} for name, value, field in _REFUSED),
    ]
    for case in cases:
        named = {"$defs": schema["$defs"], "$ref": f"#/$defs/{case['request']}"}
        fits = Draft202012Validator(named, registry=registry).is_valid(case["value"])
        if fits == ("refused" in case):
            raise ValueError(f"The schema says otherwise: {case}")
    return cases
