"""Frames written from ``protocol/README.md`` (Data frames) and ``protocol/streams.json`` alone: what the product must read and write.

Nothing here may import ``megalens``: a golden file proves something only where its writer is not the encoder under test.
"""

from __future__ import annotations

import io
import json
import math
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa

__all__ = [
    "STREAMS",
    "arrow_schema",
    "arrow_table",
    "frame_bytes",
    "frame_parts",
    "rows_as_json",
    "rows_of_json",
]

STREAMS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "protocol/streams.json").read_text(encoding="utf-8")
)["streams"]

_TYPES = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "utf8": pa.utf8(),
    "list<int32>": pa.list_(pa.int32()),
    "list<float32>": pa.list_(pa.float32()),
    "list<utf8>": pa.list_(pa.utf8()),
}
# Magic, header version, bits, sequence number, step, time, rows, length of the body, stream.
_HEADER = struct.Struct("<4sHHQqqII24s")


def arrow_schema(stream: str) -> pa.Schema:
    """Return the Arrow schema of a stream."""
    return pa.schema([pa.field(each["name"], _TYPES[each["type"]]) for each in STREAMS[stream]["fields"]])


def arrow_table(stream: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows as a table; a column that came later may be left out, and is NaN or 0 then."""
    absent = {"nan": math.nan, "zero": 0}
    fields = STREAMS[stream]["fields"]
    later = {each["name"]: absent[each["absent"]] for each in fields if "absent" in each}
    return pa.Table.from_pylist([{**later, **row} for row in rows], schema=arrow_schema(stream))


def frame_bytes(
    stream: str, table: pa.Table, *, seq: int, step: int, time_us: int, caught_up: bool, merged: bool
) -> bytes:
    """Return one data frame."""
    body = io.BytesIO()
    with pa.ipc.new_stream(body, table.schema) as writer:
        writer.write_table(table)
    written = body.getvalue()
    header = (b"MLNS", 1, caught_up | merged << 1, seq, step, time_us, table.num_rows, len(written))
    return _HEADER.pack(*header, stream.encode("ascii")) + written


def frame_parts(data: bytes) -> tuple[tuple[Any, ...], pa.Table]:
    """Return the header of a frame, without the length of its body, and its rows."""
    *header, length, stream = _HEADER.unpack_from(data)
    if len(data) != _HEADER.size + length:
        raise ValueError(f"Expected {_HEADER.size + length} bytes, got {len(data)}.")
    with pa.ipc.open_stream(data[_HEADER.size :]) as reader:
        return (*header, stream), reader.read_all()


def rows_as_json(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows for JSON, in which numbers that are not finite, and minus zero, are words."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def rows_of_json(stream: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that a JSON says so."""
    types = {each["name"]: each["type"] for each in STREAMS[stream]["fields"]}

    def read(value: Any) -> Any:
        return [read(item) for item in value] if isinstance(value, list) else float(value)

    return [{name: read(of) if "float" in types[name] else of for name, of in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "-0" if value == 0 and math.copysign(1, value) < 0 else value
