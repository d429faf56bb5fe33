"""Recordings of made-up rows, as large as those of long trainings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from megalens.hub.segment_file import seal_tail
from megalens.protocol import STREAMS, compressor_infos, encode_message, segment_name, stream_schema

__all__ = [
    *("FLAGS", "ITEMS", "STARTED", "announcement", "flag_info", "joining", "rows_of", "tensor_rows"),
    *("write_courses", "write_header", "write_recording", "write_segment"),
]

FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")
ITEMS = ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")
STARTED = 1_795_000_000.0
# Of a tail of 32 MiB.
_SEGMENT_ROWS = 160_000


def write_header(folder: Path, steps: int = 1, **more: Any) -> Path:
    """Make the folder of a finished run, whose id is its name, and write what it is."""
    folder.mkdir(parents=True, exist_ok=True)
    header = {
        "format": 2,
        "run": {"id": folder.name, "name": folder.name, "started": STARTED},
        "state": "finished",
        "ended": STARTED + steps,
        "missing_steps": [],
        **more,
    }
    (folder / "run.json").write_text(json.dumps(header), encoding="utf-8")
    return folder


def rows_of(stream: str, rows: int, **columns: Any) -> pa.RecordBatch:
    """Return rows of a stream: of a column its values, or what all of them have; an empty text or 0 where it is not named."""
    arrays = []
    for field in stream_schema(stream):
        column = columns.get(field.name, "" if pa.types.is_string(field.type) else 0)
        if isinstance(column, str | int | float):
            arrays.append(pa.repeat(pa.scalar(column, field.type), rows))
        else:
            arrays.append(
                column.cast(field.type) if isinstance(column, pa.Array) else pa.array(column, field.type)
            )
    return pa.record_batch(arrays, schema=stream_schema(stream))


def tensor_rows(rows: int, shape: list[int], source_shape: list[int], **columns: Any) -> pa.RecordBatch:
    """Return rows of traced tensors of random values: of the forward pass of a training, unless their columns say else."""
    values = np.random.default_rng(columns.get("rank", 0)).standard_normal((rows, int(np.prod(shape))))
    usual = {
        **{"phase": "train", "pass": "forward", "compressor": "Tile(tiles=96, reduction='mean')"},
        "values": list(values.astype(np.float32)),
        "labels": [[]] * rows,
        **STREAMS["tensors"].absent,
    }
    shapes = {"shape": [shape] * rows, "source_shape": [source_shape] * rows}
    return rows_of("tensors", rows, **(usual | shapes | columns))


def write_segment(folder: Path, stream: str, number: int, first: int, tables: Iterable[pa.Table]) -> None:
    """Write rows of a stream as a tail, message by message, and pack it as the hub does."""
    path = folder / stream / segment_name(number, first, ".arrows")
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, stream_schema(stream)) as writer:
        for table in tables:
            writer.write(table)
    seal_tail(path, STREAMS[stream])


def write_recording(folder: Path, series: int, steps: int) -> Path:
    """Write the recording of a finished run with statistics of gradients, packed as the hub packs it, and return its folder.

    Parameters
    ----------
    folder : Path
        Made here; the run's id is its name.
    series : int
        Tensors of the model; more than 1,000 are those of experts.
    steps : int
        Each has a row of every tensor.
    """
    write_header(folder, steps, statistics={"grad": 1})
    rng = np.random.default_rng(0)
    if series > 1000:
        names = [
            f"decoder.layers.{at % 50}.mlp.experts.local_experts.{at // 50}.weight" for at in range(series)
        ]
    else:
        names = [f"decoder.layers.{at // 4}.{ITEMS[at % 4]}.weight" for at in range(series)]
    together, whole = max(1, 25_000 // series), max(1, _SEGMENT_ROWS // series)
    for number, begin in enumerate(range(1, steps + 1, whole)):
        end = min(begin + whole, steps + 1)
        messages = (
            _moments(rng, names, range(first, min(first + together, end)))
            for first in range(begin, end, together)
        )
        write_segment(folder, "moments", number, begin, messages)
    return folder


def _moments(rng: np.random.Generator, names: list[str], steps: range) -> pa.RecordBatch:
    series = len(names)
    step = np.repeat(np.array(steps), series)
    rows = len(step)
    count = rng.integers(1000, 100_000, series).astype(float)[np.arange(rows) % series]
    variance = rng.uniform(0.5, 2, rows)
    return rows_of(
        "moments",
        rows,
        step=step,
        samples=step * 8,
        stat="grad",
        name=names * len(steps),
        stage=-1,
        count=count,
        mean=rng.normal(0, 1e-3, rows),
        m2=variance * count,
        m3=rng.normal(0, 0.1, rows) * count,
        m4=3 * variance**2 * count,
        min=-3 * variance,
        max=3 * variance,
        gradient_stage="pre_clip",
        loss_scale=1,
    )


def write_courses(folder: Path, courses: dict[str, NDArray[np.float64]], every: int = 1) -> Path:
    """Write the recording of a finished run with scalars, of each name its values from step ``every`` on, so many steps apart, and return its folder."""
    steps = max(map(len, courses.values()))
    write_header(folder, steps, streams={"scalars": {"last_step": steps * every}})
    at = np.concatenate([np.arange(1, len(values) + 1) * every for values in courses.values()])
    order = np.argsort(at, kind="stable")
    names = np.repeat(list(courses), [len(values) for values in courses.values()])
    rows = rows_of(
        "scalars",
        len(at),
        step=at[order],
        time=STARTED + at[order].astype(float),
        name=names[order].tolist(),
        value=np.concatenate(list(courses.values()))[order],
    )
    messages = (rows.slice(first, 20_000) for first in range(0, len(at), 20_000))
    write_segment(folder, "scalars", 0, every, messages)
    return folder


def flag_info(name: str, layers: list[int], **more: Any) -> dict[str, Any]:
    """Return what a hub says of a flag."""
    return {
        **{"name": name, "title": name, "layers": layers, "parts": [], "axes": [], "bytes_per_layer": None},
        **more,
    }


def joining(role: str) -> str:
    """Return what a client says first."""
    peer = {"name": "bench", "version": "0"}
    return encode_message({"type": "join", "protocol": "megalens.v2", "role": role, "peer": peer})


def announcement(
    rank: int, layers: int, layout: dict[str, Any], flags: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return what a producer says of its training."""
    return {
        "type": "announce",
        "rank": rank,
        "model": {"name": "bench", "layers": layers},
        "layout": layout,
        "flags": flags,
        "compressors": compressor_infos(),
        "config": {"flags": {}},
        "versions": {},
    }
