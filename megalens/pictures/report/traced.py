"""What was traced of a run, counted: values are most of a recording, and are not read for it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...runs import Run
from ...runs.answers import rows_of

__all__ = ["traced_flags"]

_COLUMNS = ["flag", "step", "layer", "compressor"]


def traced_flags(run: Run) -> list[dict[str, Any]]:
    """Return ``flag``, ``compressor``, ``first``, ``last``, ``steps``, ``layers`` of everything that was traced, by flag.

    ``steps`` counts the distinct steps, ``layers`` lists the layers.
    """
    source = rows_of(run)
    schema = source.streams["tensors"].schema
    table = pa.Table.from_batches(
        source.batches("tensors", None, _COLUMNS), pa.schema([schema.field(name) for name in _COLUMNS])
    )
    grouped = table.group_by(["flag", "compressor"]).aggregate(
        [("step", "min"), ("step", "max"), ("step", "count_distinct"), ("layer", "distinct")]
    )
    names = {
        "step_min": "first",
        "step_max": "last",
        "step_count_distinct": "steps",
        "layer_distinct": "layers",
    }
    renamed = grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
    rows: list[dict[str, Any]] = renamed.sort_by([("flag", "ascending"), ("first", "ascending")]).to_pylist()
    return rows
