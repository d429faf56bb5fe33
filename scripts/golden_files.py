"""Frames and recordings written from ``protocol/README.md`` (Data frames, Run folder) and ``protocol/streams.json`` alone: what the product must read and write.

Nothing here may import ``megalens``: a golden file proves something only where its writer is not the encoder under test.
"""

from __future__ import annotations

import io
import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = [
    *("STREAMS", "arrow_schema", "arrow_table", "frame_bytes", "frame_parts", "index_entries", "read_rows"),
    *("recorded_frames", "recording_files", "rows_as_json", "rows_of_json"),
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


_STARTED = 1.79e9


def recorded_frames() -> dict[str, list[Rows]]:
    """Return of each stream the frames that were recorded, by rows."""
    return {
        "tensors": [
            *(_tensors(step) for step in (1, 2)),
            [*_tensors(3), _tokens(3)],
            # Of two steps, as a producer without viewers sends them.
            _tensors(4) + _tensors(5),
        ],
        "scalars": [_losses(step) for step in range(1, 6)],
    }


def recording_files() -> dict[str, bytes]:
    """Return the files by their path under ``recordings``."""
    frames = recorded_frames()
    files = {"growing/run.json": _run(frames, state="training", ended=None)}
    files["segments/run.json"] = files["growing/run.json"]
    files["finished/run.json"] = _run(frames, state="finished", ended=_STARTED + 5)
    for stream, each in frames.items():
        files[f"growing/{stream}.arrows"], files[f"growing/{stream}.index"] = growing_file(stream, each)
        files[f"finished/{stream}.parquet"] = packed_file(stream, each)
        # Two sealed segments, one of them beside its tail, which nobody removed yet, and the tail of what is newer.
        parts = [each[:2], each[2:3], each[3:]]
        for number, part in enumerate(parts):
            place = f"segments/{stream}/{number:06d}-step-{part[0][0]['step']}"
            if part is not parts[-1]:
                files[f"{place}.parquet"] = sealed_file(stream, part)
            if number:
                files[f"{place}.arrows"], _ = growing_file(stream, part)
    # Four steps, back to the checkpoint after the second, and three more.
    first = {"scalars": [_losses(step) for step in range(1, 5)]}
    again = {"scalars": [_losses(step, better=0.5) for step in range(3, 6)]}
    files["went-back/run.json"] = _run(again, state="finished", ended=_STARTED + 9)
    files["went-back/scalars.parquet"] = packed_file("scalars", again["scalars"])
    attempt = {"state": "lost", "ended": _STARTED + 4, "superseded_from": 3}
    files["went-back/attempts/1/run.json"] = _run(first, attempt=1, **attempt)
    files["went-back/attempts/1/scalars.parquet"] = packed_file("scalars", first["scalars"])
    return files


_ROW: dict[str, Any] = {
    **{"micro_batch": 0, "phase": "train", "pass": "forward", "rank": 0, "flag": "MLP1_mat_mul", "part": ""},
    **{"compressor": "Tile(tiles=3, reduction='mean')", "source_shape": [2, 2, 8], "shape": [1, 2, 3]},
    **{"labels": [], "nan_count": 0, "inf_count": 0},
}


def _tensors(step: int) -> Rows:
    return [{**_ROW, "step": step, "layer": layer, "values": [step + layer / 8] * 6} for layer in (0, 1)]


def _tokens(step: int) -> dict[str, Any]:
    read = {"source_shape": [2, 2], "shape": [1, 2], "values": [104.0, 233.0], "labels": ["h", "é"]}
    of = {"step": step, "layer": -1, "flag": "InputTokens", "part": "ids", "compressor": "NoOp()"}
    return {**_ROW, **of, **read}


def _losses(step: int, better: float = 0.0) -> Rows:
    common = {"step": step, "time": _STARTED + step, "rank": 0}
    rows = [{**common, "name": "loss", "value": 4 / step - better, "unit": "nats/byte"}]
    # Not at every step, and once not finite.
    if step % 2:
        rows.append(
            {**common, "name": "grad_norm", "value": float("inf") if step == 3 else 0.5 * step, "unit": ""}
        )
    return rows


def _run(frames: dict[str, list[Rows]], *, attempt: int | None = None, **more: Any) -> bytes:
    run_id = "20260921-120000-golden-1a2b"
    layers = list(range(2))
    flag = {"name": "MLP1_mat_mul", "title": "MLP1 output", "layers": layers, "parts": [""]}
    described = {
        "format": 2,
        "run": {
            "id": run_id if attempt is None else f"{run_id}.attempt-{attempt}",
            "name": "golden",
            "started": _STARTED,
        },
        "model": {"name": "GPT", "layers": 2, "hidden": 8, "heads": 2},
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": [{**flag, "axes": ["position", "feature"], "bytes_per_layer": None}],
        "compressors": [],
        "config": {"flags": {}},
        "versions": {"megalens": "0.1.0"},
        "streams": {name: _summary(each) for name, each in frames.items()},
        "missing_steps": [],
        **more,
    }
    return (json.dumps(described, indent=1) + "\n").encode()


def _summary(frames: list[Rows]) -> dict[str, int]:
    steps = [row["step"] for rows in frames for row in rows]
    return {"rows": len(steps), "bytes": 0, "first_step": min(steps), "last_step": max(steps)}
