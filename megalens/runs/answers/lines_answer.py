"""Lines as they travel: an Arrow stream, with what is known of them as JSON in its schema."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ..errors import ClientError
from .scalar_answer import ScalarQuery, read_scalars
from .selection import StreamRows
from .trend_answer import TrendQuery, axes_of, read_trend

__all__ = ["arrow_stream", "read_lines"]


def read_lines(
    rows: StreamRows,
    stream: str,
    texts: Mapping[str, str],
    hello: Mapping[str, Any],
    cancelled: threading.Event,
) -> memoryview:
    """Answer a question for lines.

    Parameters
    ----------
    rows : StreamRows
        Where the rows lie.
    stream : str
        ``tensors``, of which a statistic is drawn, or ``scalars``.
    texts : mapping
        The request: see :meth:`TrendQuery.of_texts` and :meth:`ScalarQuery.of_texts`.
    hello : mapping
        What the run says of its flags.
    cancelled : threading.Event
        Ends the reading.

    Raises
    ------
    ClientError
        Naming what is at fault.
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
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
