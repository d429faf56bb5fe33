"""Reading just the rows of a recorded stream that a picture needs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..client import Query, RunFolder
from ..protocol import stream_schema
from .errors import ServerError

__all__ = ["Selection", "no_rows", "read_selection", "tensor_index"]

_ENVELOPE_BYTES = 8192


@dataclass(frozen=True)
class Selection:
    """Rows as an Arrow IPC stream.

    Attributes
    ----------
    body : pyarrow.Buffer
        The stream, with exactly the stream's schema.
    every : int
        1, or n when only every n-th step fitted.
    """

    body: pa.Buffer
    every: int


def read_selection(
    folder: RunFolder,
    stream: str,
    query: Query,
    limit_bytes: int,
    cancelled: threading.Event,
    lowest: bool = False,
) -> Selection:
    """Read the rows that match, thinned to every n-th step where they exceed ``limit_bytes``. The newest step is always kept.

    With ``lowest`` each layer's rows are those of the lowest rank that has it at all; of a query for ``measured`` rows only the newest of
    each layer are read.

    Raises
    ------
    ServerError
        413 when one step alone is larger, 499 when ``cancelled`` was set meanwhile.
    """
    if lowest:
        every_step = replace(query, first=None, last=None, measured=False)
        query = query.on_lowest(_distinct_of(folder, every_step, ["layer", "rank"], cancelled))
    if query.measured:
        return Selection(_newest(folder, query, cancelled), 1)
    steps, sizes = _step_sizes(folder, stream, query, cancelled)
    every = _thinning(sizes, limit_bytes)
    kept = steps[::-1][::every][::-1]
    if every > 1:
        query = replace(query, first=int(kept[0]), last=int(kept[-1]))
    schema = folder.streams.named(stream).schema
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in folder.batches(stream, query):
            _check(cancelled)
            rows = batch
            if every > 1:
                rows = batch.filter(pc.is_in(batch.column("step"), pa.array(kept, pa.int64())))
            if rows.num_rows:
                writer.write_batch(rows)
    return Selection(sink.getvalue(), every)


def no_rows(stream: str) -> Selection:
    """Return what is read of a run that has nothing of a stream."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, stream_schema(stream)).close()
    return Selection(sink.getvalue(), 1)


def tensor_index(folder: RunFolder, cancelled: threading.Event) -> list[dict[str, Any]]:
    """Return what a recorded run has of each flag, phase and pass: parts, layers, ranks and steps, ascending."""
    columns = ["step", "layer", "phase", "flag", "part", "pass", "rank"]
    lists = ("part", "layer", "rank", "step")
    found: dict[tuple[str, str, str], dict[str, set[Any]]] = {}
    for row in _distinct_of(folder, Query(), columns, cancelled).to_pylist():
        key = (row["flag"], row["phase"], row["pass"])
        seen = found.setdefault(key, {name: set() for name in lists})
        for name in lists:
            seen[name].add(row[name])
    return [
        {
            "flag": flag,
            "phase": phase,
            "pass": pass_,
            **{f"{name}s": sorted(values) for name, values in seen.items()},
        }
        for (flag, phase, pass_), seen in sorted(found.items())
    ]


def _distinct_of(folder: RunFolder, query: Query, columns: list[str], cancelled: threading.Event) -> pa.Table:
    """Return the distinct values of some columns in the rows that match."""
    pieces: list[pa.Table] = []
    for batch in folder.batches("tensors", query, columns):
        _check(cancelled)
        pieces.append(pa.Table.from_batches([batch]))
        if len(pieces) >= 256:
            pieces = [_distinct(pieces, columns)]
    schema = stream_schema("tensors")
    empty = pa.schema([schema.field(name) for name in columns]).empty_table()
    return _distinct(pieces, columns) if pieces else empty


def _newest(folder: RunFolder, query: Query, cancelled: threading.Event) -> pa.Buffer:
    """Return the newest step's rows of each layer that match, as an Arrow IPC stream."""
    places = _distinct_of(folder, query, ["layer", "step"], cancelled)
    newest = places.group_by("layer").aggregate([("step", "max")])
    schema = stream_schema("tensors")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for layer, step in zip(newest["layer"].to_pylist(), newest["step_max"].to_pylist(), strict=True):
            for batch in folder.batches(
                "tensors", replace(query, layers=((layer, layer),), first=step, last=step)
            ):
                _check(cancelled)
                writer.write_batch(batch)
    return sink.getvalue()


def _distinct(pieces: list[pa.Table], columns: list[str]) -> pa.Table:
    return pa.concat_tables(pieces).group_by(columns).aggregate([])


def _step_sizes(folder: RunFolder, stream: str, query: Query, cancelled: threading.Event) -> tuple[Any, Any]:
    """Return the distinct steps, ascending, and the bytes of each."""
    steps: list[Any] = []
    sizes: list[Any] = []
    policy = folder.streams.named(stream).policy
    columns = ["step"] if policy.shape is None else ["step", policy.shape]
    for batch in folder.batches(stream, query, columns):
        _check(cancelled)
        step = batch.column(0).to_numpy()
        size = np.full(len(step), float(policy.row_bytes))
        if policy.shape is not None:
            size += 4.0 * _entries(batch.column(1))
        distinct, where = np.unique(step, return_inverse=True)
        steps.append(distinct)
        sizes.append(np.bincount(where, weights=size))
    if not steps:
        return np.empty(0, np.int64), np.empty(0)
    distinct, where = np.unique(np.concatenate(steps), return_inverse=True)
    return distinct, np.bincount(where, weights=np.concatenate(sizes))


def _entries(shapes: pa.ListArray) -> Any:
    """Return the product of each shape; an empty tensor has 0, a shape of no axes 1."""
    lengths = pc.list_value_length(shapes).to_numpy()
    sizes = np.ones(len(shapes))
    axes = pc.list_flatten(shapes).to_numpy().astype(np.float64)
    filled = lengths > 0
    if len(axes):
        starts = np.concatenate([[0], np.cumsum(lengths[filled])[:-1]])
        sizes[filled] = np.multiply.reduceat(axes, starts)
    return np.maximum(sizes, 0)


def _thinning(sizes: Any, limit_bytes: int) -> int:
    room = limit_bytes - _ENVELOPE_BYTES
    if not len(sizes) or sizes.sum() <= room:
        return 1
    if sizes[-1] > room:
        raise ServerError(
            413,
            "too-large",
            f"One step alone takes {int(sizes[-1]):,} bytes, more than the {limit_bytes:,} that may be sent. Choose fewer layers.",
            "limit_bytes",
        )
    every = max(2, int(np.ceil(sizes.sum() / max(room, 1))))
    newest_first = sizes[::-1]
    while newest_first[::every].sum() > room:
        every += 1
    return every


def _check(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise ServerError(499, "cancelled", "The request was cancelled.")
