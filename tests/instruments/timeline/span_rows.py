"""Rows of the stream ``spans``: by hand, of a simulated job, and of what is opened."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import parquet
from recorded_run import write_run

import megalens
from megalens.protocol import stream_schema
from tests.kit.simulated_jobs import Job, Truth, simulate

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


def recorded(folder: Path, job: Job) -> tuple[pa.Table, Truth]:
    """Write a run with the spans of a simulated job, and return them with what is true of it."""
    write_run(folder, steps=3, layers=2, nonfinite_at=None)
    rows, truth = simulate(job)
    schema = stream_schema("spans")
    parquet.write_table(rows.select(schema.names).cast(schema), folder / "spans.parquet")
    return rows, truth
