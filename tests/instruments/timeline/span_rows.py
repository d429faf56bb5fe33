"""Rows of the stream ``spans`` by hand."""

from __future__ import annotations

import pyarrow as pa

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
