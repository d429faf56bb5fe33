"""Rows of the stream of moments in a recording."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from recorded_files import recorded_table
from rows import finished
from shape import STEPS

__all__ = ["Rows", "l2_of_gradients", "rows_of"]

Rows = dict[tuple[int, str, str], dict[str, Any]]
"""By step, statistic and name."""


def rows_of(folder: Path) -> Rows:
    """Return the rows of the one recording in ``folder``, each name once a step."""
    run = finished(folder)
    found: Rows = {}
    for row in recorded_table(run.folder, "moments").to_pylist():
        key = (row["step"], row["stat"], row["name"])
        assert key not in found, f"{key} came twice"
        found[key] = row
    return found


def l2_of_gradients(rows: Rows) -> list[float]:
    """Return the norm of all gradients of each step."""
    squares = [0.0] * STEPS
    for (step, stat, _), row in rows.items():
        if stat == "grad":
            squares[step - 1] += row["m2"] + row["count"] * row["mean"] ** 2
    return [math.sqrt(square) for square in squares]
