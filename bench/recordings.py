"""Recordings of made-up statistics, as large as those of long trainings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from megalens.hub.segment_file import seal_tail
from megalens.protocol import STREAMS, segment_name, stream_schema

__all__ = ["ITEMS", "write_courses", "write_recording"]

ITEMS = ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")
_STARTED = 1_795_000_000.0
# Of a tail of 32 MiB.
_SEGMENT_ROWS = 160_000


def write_recording(folder: Path, series: int, steps: int) -> Path:
    """Write the recording of a finished run with statistics of gradients, packed as the hub packs it.

    Parameters
    ----------
    folder : Path
        Made here; the run's id is its name.
    series : int
        Tensors of the model; more than 1,000 are those of experts.
    steps : int
        Each has a row of every tensor.

    Returns
    -------
    Path
        The folder.
    """
    folder.mkdir(parents=True)
    header = {
        "format": 2,
        "run": {"id": folder.name, "name": folder.name, "started": _STARTED},
        "state": "finished",
        "ended": _STARTED + steps,
        "statistics": {"grad": 1},
        "missing_steps": [],
    }
    (folder / "run.json").write_text(json.dumps(header), encoding="utf-8")
    rng = np.random.default_rng(0)
    if series > 1000:
        names = [
            f"decoder.layers.{at % 50}.mlp.experts.local_experts.{at // 50}.weight" for at in range(series)
        ]
    else:
        names = [f"decoder.layers.{at // 4}.{ITEMS[at % 4]}.weight" for at in range(series)]
    schema = stream_schema("moments")
    (folder / "moments").mkdir()
    together, whole = max(1, 25_000 // series), max(1, _SEGMENT_ROWS // series)
    for number, begin in enumerate(range(1, steps + 1, whole)):
        path = folder / "moments" / segment_name(number, begin, ".arrows")
        end = min(begin + whole, steps + 1)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for first in range(begin, end, together):
                writer.write_table(_rows(rng, names, range(first, min(first + together, end))))
        seal_tail(path, STREAMS["moments"])
    return folder


def _rows(rng: np.random.Generator, names: list[str], steps: range) -> pa.Table:
    series = len(names)
    found = np.repeat(np.array(steps), series)
    rows = len(found)
    count = rng.integers(1000, 100_000, series).astype(float)[np.arange(rows) % series]
    variance = rng.uniform(0.5, 2, rows)
    columns: dict[str, Any] = {
        "step": found,
        "samples": found * 8,
        "stat": ["grad"] * rows,
        "name": names * (rows // series),
        "rank": np.zeros(rows, np.int32),
        "stage": np.full(rows, -1, np.int32),
        "count": count,
        "mean": rng.normal(0, 1e-3, rows),
        "m2": variance * count,
        "m3": rng.normal(0, 0.1, rows) * count,
        "m4": 3 * variance**2 * count,
        "min": -3 * variance,
        "max": 3 * variance,
        "nan_count": np.zeros(rows),
        "inf_count": np.zeros(rows),
        "negative_inf_count": np.zeros(rows),
        "near_zero_count": np.zeros(rows),
        "rounding": np.zeros(rows),
        "gradient_stage": ["pre_clip"] * rows,
        "loss_scale": np.ones(rows),
    }
    return pa.table(columns, schema=stream_schema("moments"))


def write_courses(folder: Path, courses: dict[str, NDArray[np.float64]], every: int = 1) -> Path:
    """Write the recording of a finished run with scalars: of each name its values from step ``every`` on.

    Parameters
    ----------
    folder : Path
        Made here; the run's id is its name.
    courses : dict
        Values by name.
    every : int
        Steps from one value to the next.

    Returns
    -------
    Path
        The folder.
    """
    (folder / "scalars").mkdir(parents=True)
    steps = max(map(len, courses.values()))
    header = {
        "format": 2,
        "run": {"id": folder.name, "name": folder.name, "started": _STARTED},
        "state": "finished",
        "ended": _STARTED + steps,
        "streams": {"scalars": {"last_step": steps * every}},
        "missing_steps": [],
    }
    (folder / "run.json").write_text(json.dumps(header), encoding="utf-8")
    at = np.concatenate([np.arange(1, len(values) + 1) * every for values in courses.values()])
    order = np.argsort(at, kind="stable")
    names = np.repeat(list(courses), [len(values) for values in courses.values()])
    columns = {
        "step": at[order],
        "rank": np.zeros(len(at)),
        "time": _STARTED + at[order].astype(float),
        "name": names[order].tolist(),
        "value": np.concatenate(list(courses.values()))[order],
        "unit": [""] * len(at),
    }
    schema = stream_schema("scalars")
    path = folder / "scalars" / segment_name(0, every, ".arrows")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        writer.write_table(pa.table({f.name: pa.array(columns[f.name]).cast(f.type) for f in schema}), 20_000)
    seal_tail(path, STREAMS["scalars"])
    return folder
