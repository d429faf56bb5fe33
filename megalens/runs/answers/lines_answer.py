"""Lines as they are sent: an Arrow stream, with what is known of them as JSON in its schema."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...protocol import ScalarsRequest, TrendRequest
from ..lines import gap_starts, line_order, thin_line
from ..query import Query
from .selection import StreamRows, check_cancelled
from .trend_answer import read_trend

_COLUMNS = ["step", "time", "name", "value"]


# Scalars over steps, as lines thinned out so that no extreme is lost.
@dataclass(frozen=True)
class ScalarAnswer:
    """Scalars as lines.

    Attributes
    ----------
    table : pyarrow.Table
        ``line`` (an index into ``about.lines``), ``step``, ``time``, ``value`` and ``start`` (1 at the begin
        of a stretch), all float64; ordered by line, then step.
    about : dict
        ``lines``: name and ``total`` of each; ``units`` of every scalar of the run by its name.
    """

    table: pa.Table
    about: dict[str, Any]


def read_scalars(rows: StreamRows, request: ScalarsRequest, cancelled: threading.Event) -> ScalarAnswer:
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
            pieces[name].append(batch.column(name).to_numpy())
    columns: list[list[Any]] = [[np.zeros(0)] for _ in range(5)]
    lines: list[dict[str, Any]] = []
    if pieces["of"]:
        of, step, time, value = (np.concatenate(pieces.pop(name)) for name in ("of", "step", "time", "value"))
        # The sort is stable: rows of one step stay as they came.
        order = line_order(of, step)
        for line in np.split(order, np.flatnonzero(np.diff(of[order])) + 1):
            if not len(line):
                continue
            at = step[line]
            chosen, begins = thin_line(at, value[line], gap_starts(at), request.get("points"))
            start = np.zeros(len(chosen))
            start[begins] = 1
            stay = line[chosen]
            found = (np.full(len(chosen), len(lines)), step[stay], time[stay], value[stay], start)
            for column, part in zip(columns, found, strict=True):
                column.append(part.astype(np.float64))
            lines.append({"name": names[of[line[0]]], "total": len(line)})
    labels = ("line", "step", "time", "value", "start")
    answer = {label: pa.array(np.concatenate(column)) for label, column in zip(labels, columns, strict=True)}
    return ScalarAnswer(pa.table(answer), {"lines": lines, "units": units})


def tensor_lines(rows: StreamRows, request: TrendRequest, cancelled: threading.Event) -> memoryview:
    """Answer a request for lines of tensors; raises ``ClientError``, ``cancelled`` once that event is set."""
    trend = read_trend(rows, request, cancelled)
    return _lines(rows, trend.table, trend.about, request.get("steps"))


def scalar_lines(rows: StreamRows, request: ScalarsRequest, cancelled: threading.Event) -> memoryview:
    """Answer a request for lines of scalars; raises ``ClientError`` (``cancelled``)."""
    scalars = read_scalars(rows, request, cancelled)
    return _lines(rows, scalars.table, scalars.about, request.get("steps"))


def _lines(rows: StreamRows, table: pa.Table, about: dict[str, Any], steps: list[int] | None) -> memoryview:
    about["missing"] = [
        [low, high]
        for low, high in rows.missing_steps
        if steps is None or (high >= steps[0] and low <= steps[1])
    ]
    text = json.dumps(about, ensure_ascii=False, allow_nan=False)
    return arrow_stream(table.replace_schema_metadata({"megalens": text}))


def arrow_stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
