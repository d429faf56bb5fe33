"""Files of a recording, written from ``protocol/README.md`` (Run folder) and ``protocol/streams.json`` alone. Nothing here may import ``megalens``."""

from __future__ import annotations

import io
import json
import struct
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scripts.golden_frame import arrow_schema, arrow_table, rows_as_json

__all__ = ["growing_file", "index_entries", "packed_file", "read_rows", "sealed_file", "tail_file"]

Rows = list[dict[str, Any]]

_FIRST, _ENTRY, _UNIT = struct.Struct("<8sqQQ"), struct.Struct("<qqqII"), 32


def growing_file(stream: str, frames: list[Rows]) -> tuple[bytes, bytes]:
    """Return an ``.arrows`` file with one message for each frame, and the index beside it."""
    file, index = bytes(arrow_schema(stream).serialize()), b""
    crc, kinds = 0, dict[str, int]()
    for rows in frames:
        (batch,) = arrow_table(stream, rows).to_batches()
        message = bytes(batch.serialize())
        if not index:
            crc = zlib.crc32(message[: 1 << 16])
            index = _FIRST.pack(b"MLNSIDX1", len(file), crc, _check(crc, len(file)))
        file += message
        steps = [row["step"] for row in rows]
        kind = _kind(stream, rows)
        if kind not in kinds:
            kinds[kind] = len(kinds) + 1
            text = kind.encode() + b" " * (-len(kind.encode()) % _UNIT)
            index += _unit(crc, -len(text), kinds[kind], zlib.crc32(text), 0) + text
        index += _unit(crc, len(file), min(steps), max(steps), kinds[kind])
    return file, index


def packed_file(stream: str, frames: list[Rows]) -> bytes:
    """Return a ``.parquet`` file with the rows of all frames."""
    file = io.BytesIO()
    pq.write_table(arrow_table(stream, [row for rows in frames for row in rows]), file, compression="zstd")
    return file.getvalue()


def sealed_file(stream: str, frames: list[Rows]) -> bytes:
    """Return a sealed segment with the rows of some frames: sorted by step, a row group for each step, texts that repeat as dictionaries."""
    rows = sorted((row for rows in frames for row in rows), key=lambda row: row["step"])
    words = [each.name for each in arrow_schema(stream) if each.type == pa.utf8()]
    file, table = io.BytesIO(), arrow_table(stream, rows)
    with pq.ParquetWriter(file, table.schema, compression="zstd", use_dictionary=words) as writer:
        for step in sorted({row["step"] for row in rows}):
            writer.write_table(table.filter(pc.field("step") == step))
    return file.getvalue()


def tail_file(stream: str, frames: list[Rows]) -> bytes:
    """Return a tail: the schema, and one message for each frame."""
    return growing_file(stream, frames)[0]


def read_rows(name: str, data: bytes) -> Rows:
    """Return the rows of either file, for JSON."""
    if name.endswith(".parquet"):
        return rows_as_json(pq.read_table(io.BytesIO(data)))
    with pa.ipc.open_stream(data) as reader:
        return rows_as_json(reader.read_all())


def index_entries(data: bytes) -> list[tuple[int, int, Any]]:
    """Return of each message that an index names its steps, first and last, and what its rows are of.

    Raises
    ------
    ValueError
        When the index is none, or one of its checks is wrong.
    """
    magic, begin, crc, check = _FIRST.unpack_from(data)
    if magic != b"MLNSIDX1" or check != _check(crc, begin):
        raise ValueError("The first unit of an index is wrong.")
    found, kinds, at = [], dict[int, Any](), _UNIT
    while at < len(data):
        end, first, last, kind, check = _ENTRY.unpack_from(data, at)
        if check != _check(crc, end, first, last, kind) >> 32:
            raise ValueError(f"The unit at byte {at} of an index is wrong.")
        at += _UNIT
        if end >= 0:
            found.append((first, last, kinds[kind]))
            continue
        text = data[at : at - end]
        if zlib.crc32(text) != last:
            raise ValueError(f"The text at byte {at} of an index is wrong.")
        kinds[first] = json.loads(text)
        at -= end
    return found


def _unit(crc: int, *numbers: int) -> bytes:
    return _ENTRY.pack(*numbers, _check(crc, *numbers) >> 32)


def _check(crc: int, *numbers: int) -> int:
    found = crc
    for number in numbers:
        found = (found ^ number % 2**64) * 0x9E3779B97F4A7C15 % 2**64
        found ^= found >> 29
    return found


def _kind(stream: str, rows: Rows) -> str:
    """Return what the rows of a message are of: the different values of text and int32, and how many rows have them."""
    schema = arrow_schema(stream)
    names = [each.name for each in schema if each.type in (pa.utf8(), pa.int32())]
    counts: dict[tuple[Any, ...], int] = {}
    for row in rows:
        # A column that came later may be left out of a row.
        key = tuple(row.get(name, 0) for name in names)
        counts[key] = counts.get(key, 0) + 1
    columns = {name: [key[at] for key in counts] for at, name in enumerate(names)}
    return json.dumps({**columns, "rows": list(counts.values())})
