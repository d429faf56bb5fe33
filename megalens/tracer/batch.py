"""What the training thread hands to the producer thread, and how it becomes Arrow rows there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from torch import Tensor

from ..protocol import stream_schema

__all__ = ["Batch", "Row", "ScalarRow", "scalars_table", "split_rows", "tensors_table"]


class Row(NamedTuple):
    """One compressed tensor, on the host or on its way there."""

    micro_batch: int
    phase: str
    layer: int
    flag: str
    part: str
    compressor: str
    source_shape: tuple[int, ...]
    values: Tensor
    nonfinite: tuple[int, int] | Tensor
    """Counts of NaN and infinity; a tensor of the two where the device counted them."""


class ScalarRow(NamedTuple):
    """One number, not yet read where it is a tensor."""

    step: int
    time: float
    name: str
    value: float | Tensor
    unit: str


@dataclass(slots=True)
class Batch:
    """All that one step, or one phase outside of steps, gave."""

    step: int
    rows: list[Row] = field(default_factory=list)
    scalars: list[ScalarRow] = field(default_factory=list)
    nbytes: int = 0
    wall_ns: int = 0
    """Wall time of the step; 0 outside of steps."""
    spent_ns: int = 0
    """Time of the training thread inside the tracer."""
    probes: tuple[int, int, list[str]] | None = None
    """Fired, expected, names of the missing; None when nothing was to be traced."""
    ready: Any = None
    """A device event after which the copies are there; None on the CPU."""


def split_rows(rows: Sequence[Row], limit: int) -> Iterator[Sequence[Row]]:
    """Give ``rows`` in runs of at most ``limit`` bytes of values each, one row at least."""
    start, size = 0, 0
    for index, row in enumerate(rows):
        nbytes = row.values.nbytes
        if size and size + nbytes > limit:
            yield rows[start:index]
            start, size = index, 0
        size += nbytes
    if start < len(rows):
        yield rows[start:]


def tensors_table(
    step: int, rank: int, rows: Sequence[Row], labels: Callable[[Row], list[str]] | None = None
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Return the ``tensors`` rows of one step and their non-finite counts.

    Parameters
    ----------
    step, rank : int
        Where they come from.
    rows : sequence of Row
        Complete on the host.
    labels : callable, optional
        Gives the text of a row's values.

    Returns
    -------
    batch : pyarrow.RecordBatch
        With exactly the schema of the stream.
    nonfinite : numpy.ndarray
        int64 ``[rows, 2]``, NaN and infinity.
    """
    values = [row.values.numpy().reshape(-1) for row in rows]
    counts = np.array(
        [row.nonfinite if isinstance(row.nonfinite, tuple) else row.nonfinite.tolist() for row in rows],
        dtype=np.int64,
    ).reshape(-1, 2)
    texts = [labels(row) if labels else [] for row in rows]
    n = len(rows)
    schema = stream_schema("tensors")
    columns = [
        pa.array(np.full(n, step, np.int64)),
        pa.array(np.fromiter((row.micro_batch for row in rows), np.int32, n)),
        pa.array([row.phase for row in rows], pa.utf8()),
        pa.array(["forward"] * n, pa.utf8()),
        pa.array(np.full(n, rank, np.int32)),
        pa.array(np.fromiter((row.layer for row in rows), np.int32, n)),
        pa.array([row.flag for row in rows], pa.utf8()),
        pa.array([row.part for row in rows], pa.utf8()),
        pa.array([row.compressor for row in rows], pa.utf8()),
        _shapes([row.source_shape for row in rows]),
        _shapes([row.values.shape for row in rows]),
        pa.ListArray.from_arrays(
            _offsets([len(v) for v in values]),
            pa.array(np.concatenate(values) if values else np.empty(0, np.float32)),
        ),
        pa.array(texts, pa.list_(pa.utf8())),
        pa.array(np.ascontiguousarray(counts[:, 0])),
        pa.array(np.ascontiguousarray(counts[:, 1])),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema), counts


def scalars_table(rank: int, rows: Sequence[tuple[int, float, str, float, str]]) -> pa.RecordBatch:
    """Return ``scalars`` rows from (step, time, name, value, unit) tuples."""
    steps, times, names, values, units = zip(*rows, strict=True) if rows else ((),) * 5
    columns = [
        pa.array(steps, pa.int64()),
        pa.array(times, pa.float64()),
        pa.array(np.full(len(rows), rank, np.int32)),
        pa.array(names, pa.utf8()),
        pa.array(np.array(values, np.float64)),
        pa.array(units, pa.utf8()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=stream_schema("scalars"))


def _offsets(lengths: Sequence[int]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets)


def _shapes(shapes: Sequence[Sequence[int]]) -> pa.Array:
    flat = np.fromiter((size for shape in shapes for size in shape), np.int32)
    return pa.ListArray.from_arrays(_offsets([len(shape) for shape in shapes]), pa.array(flat))
