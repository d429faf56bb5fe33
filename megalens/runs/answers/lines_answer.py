"""Lines as they are sent: an Arrow stream, with what is known of them as JSON in its schema."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...protocol import parse_json
from ..errors import ClientError
from ..lines import gap_starts, line_order, thin_line
from ..query import Query
from .selection import StreamRows, check_cancelled
from .stream_query import whole_number
from .trend_answer import TrendQuery, axes_of, read_trend

_MOST_NAMES = 1000
_COLUMNS = ["step", "time", "name", "value"]
_KNOWN = ("names", "first", "last", "points")


# Scalars over steps, as lines thinned out so that no extreme is lost.
@dataclass(frozen=True)
class ScalarQuery:
    """Which scalars a request asks for; None means all names, no bound of steps, every point."""

    names: tuple[str, ...] | None
    first: int | None
    last: int | None
    points: int | None

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> ScalarQuery:
        """Check a request: ``names`` (a JSON list of text), ``first``, ``last`` and ``points``."""
        for name in texts:
            if name not in _KNOWN:
                raise _bad(name[:100], f"Scalars cannot be asked for {name!r:.100}.")
        names = None
        if "names" in texts:
            with contextlib.suppress(ValueError):
                names = parse_json(texts["names"])
            if (
                not isinstance(names, list)
                or len(names) > _MOST_NAMES
                or not all(isinstance(name, str) for name in names)
            ):
                raise _bad("names", f"names must be a JSON list of text, got {texts['names']!r:.100}.")
            names = tuple(names)
        first, last = (whole_number(texts, name) for name in ("first", "last"))
        points = whole_number(texts, "points", 1)
        return cls(names, first, last, points)


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


def read_scalars(rows: StreamRows, asked: ScalarQuery, cancelled: threading.Event) -> ScalarAnswer:
    pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in ("of", "step", "time", "value")}
    units: dict[str, str] = {}
    query = Query(name=asked.names, first=asked.first, last=asked.last)
    for batch in rows.batches("scalars", None, ["name", "unit"]):
        check_cancelled(cancelled)
        for pair in pa.Table.from_batches([batch]).group_by(["name", "unit"]).aggregate([]).to_pylist():
            units[pair["name"]] = pair["unit"] or units.get(pair["name"], "")
    names = list(units) if asked.names is None else [name for name in asked.names if name in units]
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
            chosen, begins = thin_line(at, value[line], gap_starts(at), asked.points)
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


def _bad(field: str, message: str) -> ClientError:
    return ClientError(message, code="bad-parameter", field=field)


def read_lines(
    rows: StreamRows,
    stream: str,
    texts: Mapping[str, str],
    hello: Mapping[str, Any],
    cancelled: threading.Event,
) -> memoryview:
    """Answer a request for lines of ``tensors`` or ``scalars``.

    ``texts`` are those of :meth:`TrendQuery.of_texts` or :meth:`ScalarQuery.of_texts`; ``hello`` describes
    the flags. Raises ``ClientError`` naming the parameter at fault, or ``cancelled`` once that event is set.
    """
    if stream == "tensors":
        asked = TrendQuery.of_texts(rows.streams, texts, axes_of(hello))
        trend = read_trend(rows, asked, cancelled)
        table, about = trend.table, trend.about
        first, last = asked.rows.query.first, asked.rows.query.last
    elif stream == "scalars":
        wanted = ScalarQuery.of_texts(texts)
        scalars = read_scalars(rows, wanted, cancelled)
        table, about, first, last = scalars.table, scalars.about, wanted.first, wanted.last
    else:
        raise ClientError(f"There are no lines of {stream!r:.60}.", code="bad-parameter", field="stream")
    about["missing"] = [
        [low, high]
        for low, high in rows.missing_steps
        if (first is None or high >= first) and (last is None or low <= last)
    ]
    text = json.dumps(about, ensure_ascii=False, allow_nan=False)
    return arrow_stream(table.replace_schema_metadata({"megalens": text}))


def arrow_stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
