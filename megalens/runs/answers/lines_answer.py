"""Lines over steps, of traced tensors and of scalars: read, merged, thinned, and packed as they are sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...protocol import ScalarsRequest, StreamRequest, TrendRequest
from ..dask_engine import DaskEngine
from ..moments.grouping.cells import moment_columns, reading_value
from ..moments.grouping.series import keep_extremes, stretches
from ..query import Query, Selection, half_of
from ..run_folder import RunFolder
from .selection import StreamRows, check_cancelled, on_lowest_rank
from .stream_query import StreamQuery
from .trend_rows import (
    Column,
    distinct_columns,
    joined_pieces,
    merged_rows,
    retained_moments,
    retained_samples,
    tensor_moments,
)

Integers = NDArray[np.int64]

# Not of stored values: tile means say nothing about a tensor's tails.
_TENSOR_ONLY = ("skewness", "kurtosis")
_OWN = ("statistic", "selection", "points")
_KIND = ("compressor", "source_shape", "shape")
_KEYS = ("step", "layer", "rank", *_KIND, "nan_count", "inf_count")
_MERGED_ROWS = 1 << 16
_MOST_POINTS = 100_000
_MOST_TEXTS = 20
_COLUMNS = ["step", "time", "name", "value"]
_WIDER = 1.5


# Where lines break off, and which of their points are drawn: the twin of ``src/aggregate/read-scalars.ts``.
def gap_starts(steps: Integers) -> Integers:
    """Return the indices of ascending steps before which steps are missing.

    That is the second of two steps whose distance is more than 1.5 times the larger of the neighbouring
    distances. It needs no knowledge of how often anything is traced.
    """
    distance = np.diff(steps)
    if len(distance) < 2:
        return np.zeros(0, np.int64)
    neighbours = np.maximum(np.append(0, distance[:-1]), np.append(distance[1:], 0))
    return np.flatnonzero(distance > _WIDER * neighbours) + 1


def thin_line(
    steps: Integers, values: Column, starts: Integers, points: int | None
) -> tuple[Integers, Integers]:
    """Choose about ``points`` points (None: all) so that the line looks as it did.

    Of each of ``points`` / 4 equal spans the first, last, least and greatest stay, where values cease to be
    finite, and both ends of every stretch. ``starts`` are the indices at which a stretch begins. Returns the
    ascending indices that stay, and the indices among those at which a stretch begins.
    """
    if points is None or len(values) <= points:
        return np.arange(len(values)), starts
    begins = np.diff(stretches(steps, steps[0], steps[-1], points, blocks=False), prepend=-1) != 0
    finite = np.isfinite(values)
    ceases = ~finite & (begins | np.append(True, finite[:-1]))
    shown: Any = np.where(finite, values, np.nan)
    keep = keep_extremes(np.flatnonzero(begins), shown, ceases)
    keep[starts] = keep[starts - 1] = True
    chosen = np.flatnonzero(keep)
    return chosen, np.searchsorted(chosen, starts)


def line_order(lines: NDArray[Any], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stable order of rows by line, then by step."""
    if (steps[1:] >= steps[:-1]).all():
        # As most come. Small numbers are sorted without comparing them.
        small = lines.min(initial=0) >= -(2**15) and lines.max(initial=0) < 2**15
        return np.argsort(lines.astype(np.int16) if small else lines, kind="stable")
    return np.lexsort((steps, lines))


def drawn_lines(
    lines: NDArray[Any], steps: Integers, values: Column, points: int | None, kinds: Integers | None = None
) -> Iterator[tuple[Integers, Integers, Column]]:
    """Yield each line's rows by step, those of them that stay, and which of these begin a stretch (1): behind
    a gap, and where the kind of rows changes.
    """
    order = line_order(lines, steps)
    for line in np.split(order, np.flatnonzero(np.diff(lines[order])) + 1):
        if not len(line):
            continue
        begins = gap_starts(steps[line])
        if kinds is not None:
            begins = np.union1d(begins, np.flatnonzero(np.diff(kinds[line])) + 1)
        chosen, begins = thin_line(steps[line], values[line], begins, points)
        start = np.zeros(len(chosen))
        start[begins] = 1
        yield line, line[chosen], start


def _float_table(columns: Mapping[str, Sequence[NDArray[Any]]]) -> pa.Table:
    """Return the pieces of columns joined, as float64."""
    return pa.table(
        {
            name: pa.array(np.concatenate([np.zeros(0), *(each.astype(np.float64) for each in pieces)]))
            for name, pieces in columns.items()
        }
    )


class Lines(NamedTuple):
    """Lines as a table of float64, ordered by line, then step, and ``about`` as protocol/README.md says.

    Columns of a trend: ``layer``, ``step``, ``value``, ``nonfinite``, ``start`` (1 at the begin of a stretch)
    and, where a band was asked for, ``half``. Of scalars: ``line`` (an index into ``about["lines"]``, which
    are name and ``total`` of each), ``step``, ``time``, ``value`` and ``start``.
    """

    table: pa.Table
    about: dict[str, Any]


def read_trend(
    rows: StreamRows, request: TrendRequest, cancelled: threading.Event, engine: DaskEngine | None = None
) -> Lines:
    """Read the lines of a request: only the columns that the statistic needs, at most one row a step and
    layer in memory. A selection that takes less turns a tensor's statistic into a kept one. An engine reads
    what segments or recordings have in tasks.

    Raises ``ClientError``: ``cancelled``.
    """
    chosen = cast("StreamRequest", {name: each for name, each in request.items() if name not in _OWN})
    query = on_lowest_rank(rows, StreamQuery.of(rows.streams, "tensors", chosen, 1), cancelled)
    selection = Selection(**request["selection"]) if "selection" in request else Selection()
    statistic, points = request["statistic"], request.get("points")
    asked = statistic, selection.interval, points and min(points, _MOST_POINTS)
    of_retained = statistic.startswith("kept_")
    # Positions, vectors and bands apply to stored values, which are all there is in some runs. The newest row
    # says what a selection leaves out; it is nearly always like the first, and then one reading is enough.
    likely = of_retained or _begins_selective(rows, query, selection)
    moments = moment_columns(statistic)

    def read(selection: Selection | None) -> _LayerRows | None:
        parts = rows.parted("tensors", query) if engine is not None and isinstance(rows, RunFolder) else []
        if engine is not None and len(parts) > 1:
            with closing(engine.results(_read_part, parts, cancelled, moments, selection)) as results:
                return _LayerRows.joined(results, selection is not None)
        return _LayerRows.read(rows, query, moments, selection, cancelled)

    complete = None if likely else read(None)
    if complete is None or complete.is_selective(selection):
        retained = read(selection)
        assert retained is not None
        other = likely and not of_retained and not retained.is_selective(selection)
        return ((read(None) if other else None) or retained).answer(*asked)
    return complete.answer(*asked)


def _begins_selective(rows: StreamRows, query: Query, selection: Selection) -> bool:
    """Whether a selection takes less than the first tensors have, or asks for their spread."""
    found = rows.batches("tensors", query, list(_KIND))
    first = next((batch for batch in found if batch.num_rows), None)
    return first is not None and selection.takes_less(first.select(_KIND).slice(0, 1).to_pylist()[0])


class _LayerRows:
    """Rows merged by step and layer."""

    def __init__(self, has_values: bool) -> None:
        self.has_values = has_values
        self._pending: list[dict[str, Any]] = []
        self._waiting = 0
        # In the order of their steps, of which none is in two.
        self._merged: list[dict[str, Any]] = []
        self._kinds: dict[tuple[str, int], int] = {}
        self._compressors: dict[str, None] = {}
        self._ranks: set[int] = set()
        self._newest: tuple[int, dict[str, Any]] | None = None

    @classmethod
    def read(
        cls,
        rows: StreamRows,
        query: Query,
        moments: Sequence[str],
        selection: Selection | None,
        cancelled: threading.Event,
    ) -> _LayerRows | None:
        """Read all rows: stored values with a selection, else complete tensors' moments, or None without."""
        groups = cls(selection is not None)
        schema = rows.streams["tensors"].schema
        columns = [
            *_KEYS,
            *(["values"] if selection is not None else [n for n in moments if n in schema.names]),
        ]
        for batch in rows.batches("tensors", query, columns):
            check_cancelled(cancelled)
            read = tensor_moments(batch, moments) if selection is None else retained_moments(batch, selection)
            if read is None:
                return None
            groups._add(batch, read)
        groups._merge()
        return groups

    @classmethod
    def joined(cls, parts: Iterable[_LayerRows | None], has_values: bool) -> _LayerRows | None:
        """Join what :meth:`read` gave of parts, in their order; None where it gave that of one."""
        groups = cls(has_values)
        for found in parts:
            if found is None:
                return None
            groups._include(found)
        groups._merge()
        return groups

    def _include(self, other: _LayerRows) -> None:
        """Add what was read of other rows, which came later."""
        known = [self._kinds.setdefault(kind, len(self._kinds)) for kind in other._kinds]
        self._compressors.update(other._compressors)
        self._ranks |= other._ranks
        if other._newest and (self._newest is None or other._newest[0] >= self._newest[0]):
            self._newest = other._newest
        for rows in other._merged:
            self._pend({**rows, "kind": np.array(known, np.int32)[rows["kind"]]})

    def is_selective(self, selection: Selection) -> bool:
        return self._newest is not None and selection.takes_less(self._newest[1])

    def answer(self, statistic: str, interval: str, points: int | None) -> Lines:
        """Return the lines, and release the rows."""
        of_band = interval != "none" and statistic.removeprefix("kept_") == "mean" and self.has_values
        names = ["layer", "step", "value", "nonfinite", "start", *(["half"] if of_band else [])]
        columns: dict[str, list[Column]] = {name: [] for name in names}
        units = steps = 0
        drawn: list[dict[str, Any]] = []
        while self._merged:
            # Moments of millions of rows take most of the memory: each part is freed before the next is
            # drawn.
            rows = self._merged.pop(0)
            units = int(rows["unit_count"][-1]) if of_band else 0
            steps += 1 + int(np.count_nonzero(np.diff(rows["step"])))
            drawn.append(self._drawn(rows, statistic.removeprefix("kept_"), interval if of_band else None))
        if drawn:
            merged = joined_pieces(drawn)
            del drawn
            lines = drawn_lines(merged["layer"], merged["step"], merged["value"], points, merged["kind"])
            for _, stay, start in lines:
                for name in names:
                    columns[name].append(start if name == "start" else merged[name][stay])
        about = {
            "total": steps,
            "kept": self.has_values and not statistic.startswith("kept_"),
            "compressors": list(self._compressors)[:_MOST_TEXTS],
            "ranks": sorted(self._ranks),
            "newest": None if self._newest is None else self._newest[1],
            "units": units,
        }
        return Lines(_float_table(columns), about)

    def _drawn(self, rows: Mapping[str, Any], statistic: str, interval: str | None) -> dict[str, Any]:
        none = self.has_values and statistic in _TENSOR_ONLY
        drawn = {name: rows[name] for name in ("step", "layer", "kind")}
        drawn["value"] = np.full(len(rows["step"]), np.nan) if none else _value(rows, statistic)
        drawn["nonfinite"] = rows["nan_count"]
        if interval is not None:
            drawn["half"] = half_of(rows["unit_count"], rows["unit_m2"], interval)
        return drawn

    def _add(self, batch: pa.RecordBatch, moments: dict[str, Column]) -> None:
        if batch.num_rows == 0:
            return
        step, layer, rank, nans, infs = (
            batch.column(name).to_numpy() for name in ("step", "layer", "rank", "nan_count", "inf_count")
        )
        self._ranks.update((rank[:1] if (rank == rank[0]).all() else np.unique(rank)).tolist())
        texts = batch.column("compressor").dictionary_encode()
        compressors = texts.dictionary.to_pylist()
        # Keyed by dictionary index and stored samples, of which there are few pairs.
        pairs = np.stack([texts.indices.to_numpy().astype(np.int64), retained_samples(batch.column("shape"))])
        found, kinds = distinct_columns(pairs)
        known = [
            self._kinds.setdefault((compressors[code], samples), len(self._kinds))
            for code, samples in found.T.tolist()
        ]
        self._compressors.update(dict.fromkeys(compressors))
        newest = len(step) - 1 - int(np.argmax(step[::-1]))
        if self._newest is None or step[newest] >= self._newest[0]:
            kind = {name: batch.column(name)[newest].as_py() for name in _KIND}
            self._newest = (int(step[newest]), kind)
        self._pend(
            {
                **moments,
                "step": step.astype(np.int64, copy=False),
                "layer": layer,
                "kind": np.array(known, np.int32)[kinds],
                # With the infinite ones: neither is needed alone.
                "nan_count": (nans + infs).astype(np.float64),
            }
        )

    def _pend(self, rows: dict[str, Any]) -> None:
        self._pending.append(rows)
        self._waiting += len(rows["step"])
        if self._waiting >= max(_MERGED_ROWS, len(self._merged[-1]["step"]) // 2 if self._merged else 0):
            self._merge()

    def _merge(self) -> None:
        """Merge pending rows, and with them merged ones of the same steps: most come in order."""
        pieces, self._pending, self._waiting = self._pending, [], 0
        if not pieces:
            return
        low = min(int(piece["step"].min()) for piece in pieces)
        while self._merged and int(self._merged[-1]["step"][-1]) >= low:
            pieces.insert(0, self._merged.pop())
            low = min(low, int(pieces[0]["step"][0]))
        self._merged.append(merged_rows(joined_pieces(pieces)))


def _read_part(
    rows: RunFolder, query: Query, moments: Sequence[str], selection: Selection | None
) -> _LayerRows | None:
    return _LayerRows.read(rows, query, moments, selection, threading.Event())


def _value(merged: Mapping[str, Column], statistic: str) -> Column:
    if statistic == "nonfinite":
        return merged["nan_count"]
    if statistic == "abs_mean":
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Column = merged["absolute"] / merged["count"]
    else:
        found = reading_value({**merged, "m2_error": np.zeros(1), "m4_error": np.zeros(1)}, statistic)
    # What a few finite values are left with, often 0, is not what a tensor did.
    is_most = merged["count"] >= np.maximum(merged.get("bad", merged["nan_count"]), 1)
    return np.where(is_most, found, np.nan)


def read_scalars(rows: StreamRows, request: ScalarsRequest, cancelled: threading.Event) -> Lines:
    pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in ("of", "step", "time", "value")}
    units: dict[str, str] = {}
    wanted, (first, last) = request.get("names"), request.get("steps", (None, None))
    query = Query(name=None if wanted is None else tuple(wanted), first=first, last=last)
    for batch in rows.batches("scalars", None, ["name", "unit"]):
        check_cancelled(cancelled)
        for pair in pa.Table.from_batches([batch]).group_by(["name", "unit"]).aggregate([]).to_pylist():
            units[pair["name"]] = pair["unit"] or units.get(pair["name"], "")
    names = list(units) if wanted is None else [name for name in wanted if name in units]
    known = pa.array(names, pa.utf8())
    for batch in rows.batches("scalars", query, _COLUMNS):
        check_cancelled(cancelled)
        # Of millions of rows their names would take more memory than all else.
        of = pc.index_in(batch.column("name"), known)
        if of.null_count:
            # Of a name that came meanwhile.
            batch, of = batch.filter(of.is_valid()), of.drop_null()
        pieces["of"].append(of.to_numpy())
        for name in ("step", "time", "value"):
            pieces[name].append(batch.column(name).to_numpy(zero_copy_only=False))
    columns: dict[str, list[Any]] = {name: [] for name in ("line", "step", "time", "value", "start")}
    lines: list[dict[str, Any]] = []
    if pieces["of"]:
        found = {name: np.concatenate(pieces.pop(name)) for name in list(pieces)}
        # Rows of one step stay as they came.
        for line, stay, start in drawn_lines(
            found["of"], found["step"], found["value"], request.get("points")
        ):
            columns["line"].append(np.full(len(stay), len(lines)))
            columns["start"].append(start)
            for name in ("step", "time", "value"):
                columns[name].append(found[name][stay])
            lines.append({"name": names[found["of"][line[0]]], "total": len(line)})
    return Lines(_float_table(columns), {"lines": lines, "units": units})


def tensor_lines(
    rows: StreamRows, request: TrendRequest, cancelled: threading.Event, engine: DaskEngine | None = None
) -> memoryview:
    """Answer a request for lines of tensors; raises ``ClientError``, ``cancelled`` once that event is set."""
    return _lines(rows, read_trend(rows, request, cancelled, engine), request.get("steps"))


def scalar_lines(rows: StreamRows, request: ScalarsRequest, cancelled: threading.Event) -> memoryview:
    """Answer a request for lines of scalars; raises ``ClientError`` (``cancelled``)."""
    return _lines(rows, read_scalars(rows, request, cancelled), request.get("steps"))


def _lines(rows: StreamRows, lines: Lines, steps: list[int] | None) -> memoryview:
    lines.about["missing"] = [
        [low, high]
        for low, high in rows.missing_steps
        if steps is None or (high >= steps[0] and low <= steps[1])
    ]
    text = json.dumps(lines.about, ensure_ascii=False, allow_nan=False)
    return arrow_stream(lines.table.replace_schema_metadata({"megalens": text}))


def arrow_stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
