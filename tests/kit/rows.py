"""Rows of recorded runs, held against what one process has."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import megalens
from megalens.runs import Run

__all__ = ["RowKey", "compare", "finished", "rows_of"]

RowKey = tuple[int, int, str, int, str]
"""Step, micro-batch of the whole job, flag, layer, part."""


def finished(folder: Path, seconds: float = 60.0) -> Run:
    """Return the one run in ``folder`` once its hub has closed the recording."""
    end = time.monotonic() + seconds
    while True:
        for header in folder.glob("*/run.json"):
            if json.loads(header.read_text())["state"] == "finished":
                return megalens.open(header.parent)
        assert time.monotonic() < end, f"{folder.name}: the recording was not closed"
        time.sleep(0.02)


def rows_of(run: Run, micro_batches: int, side: str = "forward") -> dict[RowKey, dict[str, Any]]:
    """Return a run's rows of one pass by key, ``micro_batches`` being those of one replica; each key may come once only."""
    header = json.loads((run.folder / "run.json").read_text())
    replicas = {place["rank"]: place["dp"] for place in header["layout"]["ranks"]}
    found: dict[RowKey, dict[str, Any]] = {}
    for row in run.tensors(pass_=side).to_pylist():
        number = row["micro_batch"] + replicas[row["rank"]] * micro_batches
        key = (row["step"], number, row["flag"], row["layer"], row["part"])
        assert key not in found, f"{key} came twice"
        found[key] = row
    return found


def compare(
    found: Mapping[RowKey, dict[str, Any]],
    expected: Mapping[RowKey, np.ndarray],
    compress: Callable[[np.ndarray, int], np.ndarray],
    tolerance: float = 2e-4,
) -> None:
    """Hold every row against what ``compress`` makes of the whole tensor and its layer."""
    assert (sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())) == ([], [])
    for key, row in found.items():
        whole = compress(expected[key].astype(np.float32), key[3])
        assert row["source_shape"] == list(expected[key].shape), key
        assert row["shape"] == list(whole.shape), key
        values = np.asarray(row["values"], np.float32).reshape(row["shape"])
        np.testing.assert_allclose(values, whole, rtol=1e-3, atol=tolerance, err_msg=str(key))
        assert (row["nan_count"], row["inf_count"]) == (0, 0)
