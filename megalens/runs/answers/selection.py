"""Reading just the rows of a stream that a picture needs."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol import STREAMS, Streams, stream_schema
from ..errors import ClientError
from ..query import Query
from ..recorded_streams import entries_of
from ..run_folder import RunFolder
from ..tensor_index import INDEX_COLUMNS, FlagEntry, TensorIndex
from .coarser_peaks import SHAPE_COLUMNS, coarser_rows, coarser_shapes
from .stream_query import StreamQuery

_ENVELOPE_BYTES = 8192
_PENDING_BYTES = 64 * 1024 * 1024


class StreamRows(Protocol):
    """A source of a run's rows: a :class:`RunFolder`, the memory of a live run, or none."""

    @property
    def streams(self) -> Streams: ...

    @property
    def missing_steps(self) -> list[list[int]]: ...

    def batches(
        self, stream: str, query: Query | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]: ...


class NoRows:
    """A run that has statistics and nothing else."""

    streams = STREAMS
    missing_steps: ClassVar[list[list[int]]] = []

    def batches(
        self, stream: str, query: Query | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return iter(())


@dataclass(frozen=True)
class SelectedRows:
    """Rows as an Arrow IPC stream, of one step of each n where ``every`` is n: more did not fit."""

    body: pa.Buffer
    every: int


def read_selection(rows: StreamRows, asked: StreamQuery, cancelled: threading.Event) -> SelectedRows:
    """Read the rows that match, thinned to one step of each n where they exceed the limit: the newest, and
    of each n before it the one that departs most from the usual.

    Where the lowest rank is asked for, each layer's rows are those of the lowest rank that has it at all; of
    ``measured`` rows only the newest of each layer are read. Raises ``ClientError``: ``too-large`` when one
    step alone exceeds the limit, or ``cancelled``.
    """
    query = on_lowest_rank(rows, asked, cancelled)
    if query.measured:
        return SelectedRows(_newest(rows, asked, query, cancelled), 1)
    steps, sizes = _step_sizes(rows, asked, query, cancelled)
    every = _thinning(sizes, asked.limit_bytes)
    departs = None
    while True:
        retained = None
        if every > 1:
            if departs is None:
                departs = _departures(rows, asked, query, steps, cancelled)
            retained = steps[_chosen(departs, every)]
        body, reached = _written(rows, asked, query, retained, cancelled)
        if body is not None:
            return SelectedRows(body, every)
        if len(steps) == 1 or (retained is not None and len(retained) == 1):
            raise _too_large(asked.limit_bytes)
        # Texts took more than was reckoned: so many steps fit as were written.
        every = max(2 * every, math.ceil(len(steps) / max(1, reached - 1)))


def on_lowest_rank(rows: StreamRows, asked: StreamQuery, cancelled: threading.Event) -> Query:
    """Return the query, where the lowest rank is asked for limited to the lowest that has each layer."""
    return _index_of(rows, cancelled).on_lowest(asked.query) if asked.lowest else asked.query


def _index_of(rows: StreamRows, cancelled: threading.Event) -> TensorIndex:
    def check() -> None:
        check_cancelled(cancelled)

    if isinstance(rows, RunFolder):
        return rows.tensor_index(check)

    def read() -> Iterator[pa.RecordBatch]:
        for batch in rows.batches("tensors", None, INDEX_COLUMNS):
            check()
            yield batch

    return TensorIndex.of(read())


def _written(
    rows: StreamRows, asked: StreamQuery, query: Query, retained: Any, cancelled: threading.Event
) -> tuple[pa.Buffer | None, int]:
    """Return the rows of the retained steps (None: all), or how many steps were read at the size limit."""
    if retained is not None:
        query = replace(query, first=int(retained[0]), last=int(retained[-1]))
        wanted = pa.array(retained, pa.int64())
    sink = pa.BufferOutputStream()
    reached: list[Any] = []
    with pa.ipc.new_stream(sink, asked.schema) as writer:
        for batch in _batches(rows, asked, query):
            check_cancelled(cancelled)
            if retained is not None:
                batch = batch.filter(pc.is_in(batch.column("step"), wanted))
            if not batch.num_rows:
                continue
            reached.append(batch.column("step").to_numpy())
            if sink.tell() + batch.nbytes > asked.limit_bytes:
                return None, len(np.unique(np.concatenate(reached)))
            writer.write_batch(batch)
    return sink.getvalue(), 0


def _batches(rows: StreamRows, asked: StreamQuery, query: Query) -> Iterator[pa.RecordBatch]:
    if asked.peaks is None:
        yield from rows.batches(asked.stream.name, query, asked.columns)
        return
    for batch in rows.batches(asked.stream.name, query):
        yield coarser_rows(batch, asked.peaks).select(asked.schema.names)


def tensor_index(rows: StreamRows, cancelled: threading.Event) -> list[FlagEntry]:
    """Return what a run has of each flag, phase and pass: parts, layers, ranks and steps, ascending."""
    return _index_of(rows, cancelled).index()


def _distinct_of(rows: StreamRows, query: Query, columns: list[str], cancelled: threading.Event) -> pa.Table:
    pieces: list[pa.Table] = []
    pending = 0
    for batch in rows.batches("tensors", query, columns):
        check_cancelled(cancelled)
        pieces.append(pa.Table.from_batches([batch]))
        pending += batch.nbytes
        if pending > _PENDING_BYTES or len(pieces) >= 256:
            pieces = [_distinct(pieces, columns)]
            pending = pieces[0].nbytes
    schema = stream_schema("tensors")
    empty = pa.schema([schema.field(name) for name in columns]).empty_table()
    return _distinct(pieces, columns) if pieces else empty


def _newest(rows: StreamRows, asked: StreamQuery, query: Query, cancelled: threading.Event) -> pa.Buffer:
    """Return the newest step's rows of each layer that match, as an Arrow IPC stream."""
    pairs = _distinct_of(rows, query, ["layer", "step"], cancelled)
    newest = pairs.group_by("layer").aggregate([("step", "max")])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, asked.schema) as writer:
        for layer, step in zip(newest["layer"].to_pylist(), newest["step_max"].to_pylist(), strict=True):
            one = replace(query, layers=((layer, layer),), first=step, last=step)
            for batch in _batches(rows, asked, one):
                check_cancelled(cancelled)
                if sink.tell() + batch.nbytes > asked.limit_bytes:
                    raise _too_large(asked.limit_bytes)
                writer.write_batch(batch)
    return sink.getvalue()


def _distinct(pieces: list[pa.Table], columns: list[str]) -> pa.Table:
    return pa.concat_tables(pieces).group_by(columns).aggregate([])


def _step_sizes(
    rows: StreamRows, asked: StreamQuery, query: Query, cancelled: threading.Event
) -> tuple[Any, Any]:
    """Return the distinct steps, ascending, and the bytes of each."""
    steps: list[Any] = []
    sizes: list[Any] = []
    shape = asked.stream.policy.shape if asked.has_values else None
    coarse = SHAPE_COLUMNS if asked.peaks is not None else []
    columns = ["step"] if shape is None else ["step", shape, *(name for name in coarse if name != shape)]
    for batch in rows.batches(asked.stream.name, query, columns):
        check_cancelled(cancelled)
        step = batch.column(0).to_numpy()
        size = np.full(len(step), asked.row_bytes)
        if shape is not None:
            size += 4.0 * entries_of(_shapes(batch, shape, asked.peaks))
        distinct, where = np.unique(step, return_inverse=True)
        steps.append(distinct)
        sizes.append(np.bincount(where, weights=size))
    if not steps:
        return np.empty(0, np.int64), np.empty(0)
    distinct, where = np.unique(np.concatenate(steps), return_inverse=True)
    return distinct, np.bincount(where, weights=np.concatenate(sizes))


_EXTREMES = ["step", "layer", "part", "min", "max", "nan_count", "inf_count"]


def _departures(
    rows: StreamRows, asked: StreamQuery, query: Query, steps: Any, cancelled: threading.Event
) -> Any:
    """Return how far the largest magnitude at each step departs, in any layer, from what is usual there.

    That is the greatest ``|log(magnitude / median)|`` of its rows, infinite where values are not finite; 0 in
    streams whose rows do not tell their extremes.
    """
    found = np.zeros(len(steps))
    if not set(_EXTREMES) <= set(stream_schema(asked.stream.name).names):
        return found
    places: list[Any] = []
    sizes: list[Any] = []
    series: list[Any] = []
    numbers: dict[Any, int] = {}
    for batch in rows.batches(asked.stream.name, query, _EXTREMES):
        check_cancelled(cancelled)
        step, layer, part, low, high, nans, infs = (batch.column(name) for name in _EXTREMES)
        size = np.maximum(np.abs(low.to_numpy(False)), np.abs(high.to_numpy(False)))
        size[(nans.to_numpy(False) > 0) | (infs.to_numpy(False) > 0)] = np.inf
        sizes.append(size)
        places.append(np.searchsorted(steps, step.to_numpy(False)))
        parts = pc.dictionary_encode(part)
        pairs = np.stack([layer.to_numpy(False), parts.indices.to_numpy(False)])
        distinct, where = np.unique(pairs, axis=1, return_inverse=True)
        named = [(each[0], parts.dictionary[int(each[1])].as_py()) for each in distinct.T.tolist()]
        here = np.array([numbers.setdefault(name, len(numbers)) for name in named], np.int64)
        series.append(here[where.reshape(-1)])
    place, size, of = (np.concatenate(each) for each in (places, sizes, series))
    for number in range(len(numbers)):
        mine = of == number
        usual = size[mine][(size[mine] > 0) & np.isfinite(size[mine])]
        if len(usual):
            with np.errstate(divide="ignore"):
                departs = np.abs(np.log(size[mine] / np.median(usual)))
            np.maximum.at(found, place[mine], np.nan_to_num(departs, nan=0.0, posinf=np.inf))
    return found


def _chosen(departs: Any, every: int) -> Any:
    """Return the places of the newest step and, of each ``every`` before it, of the one that departs most."""
    # Of several alike the newest.
    before = departs[-2::-1]
    groups = np.append(before, np.full(-len(before) % every, -1.0)).reshape(-1, every)
    taken = groups.argmax(axis=1) + every * np.arange(len(groups))
    return (len(departs) - 1 - np.append(0, taken + 1))[::-1]


def _shapes(batch: pa.RecordBatch, shape: str, peaks: int | None) -> Any:
    """Return the shapes that rows are sent in."""
    shapes = batch.column(shape)
    if peaks is None:
        return shapes
    sent = zip(coarser_shapes(batch, peaks), shapes.to_pylist(), strict=True)
    return pa.array([coarser or stored for coarser, stored in sent], shapes.type)


def _thinning(sizes: Any, limit_bytes: int) -> int:
    capacity = limit_bytes - _ENVELOPE_BYTES
    if not len(sizes) or sizes.sum() <= capacity:
        return 1
    if sizes[-1] > capacity:
        raise _too_large(limit_bytes)
    every = max(2, int(np.ceil(sizes.sum() / max(capacity, 1))))
    newest_first = sizes[::-1]
    while newest_first[::every].sum() > capacity:
        every += 1
    return every


def _too_large(limit_bytes: int) -> ClientError:
    return ClientError(
        f"One step alone takes more than the {limit_bytes:,} bytes that may be sent. Choose fewer layers.",
        code="too-large",
        field="limit_bytes",
    )


def check_cancelled(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise ClientError("The request was cancelled.", code="cancelled")
