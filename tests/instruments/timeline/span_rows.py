"""Rows of the stream ``spans``: by hand, and of what is opened."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa

import megalens

DEFAULTS = {
    "step": 1, "rank": 0, "stage": -1, "chunk": -1, "micro_batch": -1, "kind": "collective", "name": "all_reduce",
    "start": 0, "end": 10, "count": 1, "blocked": None, "bytes": 8, "group": "0-1", "peer": -1, "sequence": -1,
    "device": "cpu", "clock": 0,
}  # fmt: skip


def table(*rows: dict) -> pa.Table:
    """Return a table; what a row does not say is a blocking all-reduce of ranks 0 and 1."""
    whole = [{**DEFAULTS, **row} for row in rows]
    for row in whole:
        if row["blocked"] is None:
            row["blocked"] = row["end"] - row["start"]
    return pa.table({name: [row[name] for row in whole] for name in DEFAULTS})


def opened(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of a run or of another tool's files, and the warnings."""
    with megalens.open(path) as run:
        return run.table("spans").to_pandas(), run.warnings
