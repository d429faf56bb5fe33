"""Merged statistics as rows of the stream ``moments``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...protocol import MOMENT_COLUMNS, stream_schema
from .gathering import WholeStep

__all__ = ["moments_table"]


def moments_table(whole: WholeStep, rank: int) -> pa.RecordBatch:
    """Return the rows of one step.

    Parameters
    ----------
    whole : WholeStep
        What there is of it.
    rank : int
        Who writes it.
    """
    stats = whole.stats
    sizes = [len(stat.names) for stat in stats]
    n = sum(sizes)
    rows = np.concatenate([stat.rows for stat in stats]) if stats else np.empty((0, len(MOMENT_COLUMNS)))
    columns: dict[str, pa.Array] = {
        "step": pa.array(np.full(n, whole.step, np.int64)),
        "samples": pa.array(np.full(n, whole.samples, np.int64)),
        "stat": pa.array(np.repeat([stat.stat for stat in stats], sizes).tolist(), pa.utf8()),
        "name": pa.array([name for stat in stats for name in stat.names], pa.utf8()),
        "rank": pa.array(np.full(n, rank, np.int32)),
        "stage": pa.array(
            np.concatenate([stat.stages for stat in stats]) if stats else np.empty(0, np.int32)
        ),
        **{name: pa.array(np.ascontiguousarray(rows[:, at])) for at, name in enumerate(MOMENT_COLUMNS)},
        "rounding": pa.array(np.zeros(n)),
        "gradient_stage": pa.array(
            np.repeat([stat.gradient_stage for stat in stats], sizes).tolist(), pa.utf8()
        ),
        "loss_scale": pa.array(np.repeat(np.array([stat.loss_scale for stat in stats], np.float64), sizes)),
    }
    schema = stream_schema("moments")
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
