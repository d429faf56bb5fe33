"""The Arrow schema of every stream, read from ``protocol/streams.json``."""

from __future__ import annotations

import math
from functools import cache

import pyarrow as pa

from .contract import contract_json
from .errors import ProtocolError

__all__ = ["STREAM_NAMES", "empty_table", "lacking", "stream_schema", "with_later_columns"]

_TYPES: dict[str, pa.DataType] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "utf8": pa.utf8(),
    "list<int32>": pa.list_(pa.int32()),
    "list<float32>": pa.list_(pa.float32()),
    "list<utf8>": pa.list_(pa.utf8()),
}

_LATER: dict[str, dict[str, float]] = {"tensors": {"compression_error": math.nan}}
"""Columns that older recordings lack, with what is read instead."""

STREAM_NAMES: tuple[str, ...] = tuple(contract_json("streams.json")["streams"])


@cache
def stream_schema(name: str) -> pa.Schema:
    """Return the schema of one stream.

    Raises
    ------
    ProtocolError
        ``bad-frame`` when there is no such stream.
    """
    stream = contract_json("streams.json")["streams"].get(name)
    if stream is None:
        raise ProtocolError(
            "bad-frame",
            f"There is no stream {name!r}. The streams are {', '.join(STREAM_NAMES)}.",
            expected=", ".join(STREAM_NAMES),
            got=repr(name),
        )
    return pa.schema([pa.field(f["name"], _TYPES[f["type"]]) for f in stream["fields"]])


def empty_table(name: str) -> pa.Table:
    """Return a table of the stream with no rows."""
    # The schema's own empty_table looks for pandas, which takes a quarter of a second.
    return pa.Table.from_batches([], stream_schema(name))


def lacking(name: str, columns: list[str]) -> list[str]:
    """Return the columns of a stream that a recording with ``columns`` should have and has not; those that came later may be absent."""
    return [
        column
        for column in stream_schema(name).names
        if column not in columns and column not in _LATER.get(name, {})
    ]


def with_later_columns(name: str, batch: pa.RecordBatch, columns: list[str] | None = None) -> pa.RecordBatch:
    """Return ``batch`` with those of ``columns`` (all of the stream when absent) that an older recording lacks, in that order."""
    wanted = stream_schema(name)
    if columns is not None:
        wanted = pa.schema([wanted.field(column) for column in columns])
    absent = [column for column in wanted.names if column not in batch.schema.names]
    if not absent:
        return batch
    filled = {
        column: pa.array([_LATER[name][column]] * batch.num_rows, wanted.field(column).type)
        for column in absent
    }
    columns = [filled[column] if column in filled else batch.column(column) for column in wanted.names]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
