"""Golden cases of trends of whole tensors, from exact rational arithmetic."""

from __future__ import annotations

import math
from typing import Any

from scripts.moment_fixtures import moment_row, plain, statistics_of

__all__ = ["trend_cases"]

_OF_WHOLE = ("mean", "std", "rms", "min", "max", "skewness", "kurtosis")
_OF_KEPT = ("mean", "std", "rms", "min", "max")

Row = tuple[int, int, list[float], list[float] | None]
"""Step, layer, what was kept, and the whole tensor where it is known."""


def trend_cases() -> list[dict[str, Any]]:
    """Rows, and each statistic of each step and layer. ``kept`` says that a statistic of whole tensors is of what was kept of them."""
    eight = [3.0, -4.0, 0.0, 5.0, 1.0, 1.0, -2.0, 8.0]
    cases: list[tuple[str, list[Row]]] = [
        ("The whole tensor, not the means of its tiles.", [(1, 0, [-0.5, 2.5, 1.0, 3.0], eight)]),
        (
            "Passes of a step are pooled value by value, and layers are apart.",
            [
                (2, 0, [1.0], [1.0, 1.0, 1.0, 1.0]),
                (2, 1, [-8.0], [-9.0, -7.0]),
                (2, 0, [6.0], [6.0]),
                (3, 0, [0.5], [0.25, 0.75]),
            ],
        ),
        (
            "Non-finite values stay out and are counted.",
            [(1, 0, [math.nan, 2.0], [math.nan, math.inf, 1.0, 3.0])],
        ),
        ("Where nothing is finite there is nothing but a count.", [(1, 0, [math.nan], [math.nan] * 3)]),
        (
            "Where one of the rows does not know its whole, all are of what was kept.",
            [(1, 0, [1.0, 2.0], [0.0, 2.0, 1.0, 3.0]), (2, 0, [4.0, 7.0], None)],
        ),
        ("A small spread far from zero.", [(1, 0, [1e4], [1e4 + x for x in (-1.5, -0.5, 0.25, 1.75)])]),
    ]
    return [_case(doc, rows) for doc, rows in cases]


def _case(doc: str, rows: list[Row]) -> dict[str, Any]:
    known = all(whole is not None for *_, whole in rows)
    places = sorted({(step, layer) for step, layer, *_ in rows})
    expected: dict[str, list[dict[str, Any]]] = {}
    for place in places:
        kept = [value for *at, values, _ in rows if tuple(at) == place for value in values]
        whole = [value for *at, _, values in rows if tuple(at) == place for value in values or ()]
        asked = dict.fromkeys(_OF_WHOLE, whole if known else kept) | {
            f"kept_{name}": kept for name in _OF_KEPT
        }
        if not known:
            # Those of tile means say nothing of a tensor's tails.
            asked |= {"skewness": [], "kurtosis": []}
        for name, values in asked.items():
            found = statistics_of([value for value in values if math.isfinite(value)])[
                name.removeprefix("kept_")
            ]
            _add(expected, name, place, found)
        finite = [value for value in kept if math.isfinite(value)]
        _add(expected, "kept_abs_mean", place, sum(map(abs, finite)) / len(finite) if finite else math.nan)
        of = whole if known else kept
        _add(expected, "nonfinite", place, float(sum(not math.isfinite(value) for value in of)))
    return {"doc": doc, "rows": [_row(*row) for row in rows], "kept": not known, "expected": expected}


def _add(expected: dict[str, list[dict[str, Any]]], name: str, place: tuple[int, int], value: float) -> None:
    (point,) = plain([{"step": place[0], "layer": place[1], "value": value}])
    expected.setdefault(name, []).append(point)


def _row(step: int, layer: int, kept: list[float], whole: list[float] | None) -> dict[str, Any]:
    row: dict[str, Any] = {"step": step, "layer": layer}
    (row["values"],) = [[value if math.isfinite(value) else "NaN" for value in kept]]
    looked = kept if whole is None else whole
    row["nan_count"] = sum(map(math.isnan, looked))
    row["inf_count"] = sum(map(math.isinf, looked))
    if whole is None:
        return {**row, "whole": None}
    moments = moment_row([value for value in whole if math.isfinite(value)])
    named = {name: moments[name] for name in ("count", "mean", "m2", "m3", "m4", "min", "max")}
    return {**row, "whole": plain([named])[0]}
