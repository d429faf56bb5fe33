"""Statistics as they are recorded: rows of the stream ``moments``, run folders with them, and trees of raw-moment files, small, with known numbers in them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from recorded_run import moment_row, write_run

from megalens.protocol import stream_schema

LAYERS = 4
NAMES = [
    f"decoder.layers.{layer}.{item}" for layer in range(LAYERS) for item in ("mlp.weight", "attention.weight")
]
SITES = [f"decoder.layers.{layer}.mlp/{end}0" for layer in range(LAYERS) for end in ("input", "output")]


def moment_table(steps, stats=("param", "grad"), names=None, **changes) -> pa.Table:
    """Return rows of some steps; mean is the step, so that rows tell where they come from."""
    rows = []
    for step in steps:
        for stat in stats:
            for place, name in enumerate(names or (SITES if stat in ("activation", "dgrad") else NAMES)):
                found = {
                    **{"rank": place % 2, "stage": place % 2, "count": 100.0, "mean": float(step)},
                    **{"m2": 100.0 * (place + 1), "m3": 0.0, "m4": 300.0 * (place + 1) ** 2},
                    **{"min": -3.0, "max": 3.0, "near_zero_count": 2.0},
                }
                rows.append(moment_row(step, stat, name, **(found | changes)))
    return pa.Table.from_pylist(rows, stream_schema("moments"))


def write_moments(folder: Path, steps: int = 20, **options) -> Path:
    """Write a closed run folder with statistics and return it."""
    write_run(folder, steps=3, layers=2, nonfinite_at=None)
    pq.write_table(moment_table(range(1, steps + 1), **options), folder / "moments.parquet")
    return folder


def record_line(step: int, stat: str, names=None, scale: float = 1.0) -> str:
    """Return one line of a raw-moment file: sums of 100 values about the step."""
    rng = np.random.default_rng(step)
    values = {}
    for name in names or NAMES:
        x = rng.normal(step, scale, 100)
        values[name] = {
            "count": 100.0,
            **{f"sum_{power}": float((x**power).sum()) for power in (1, 2, 3, 4)},
        }
    line = {"iter": step, "consumed_train_samples": step * 16, "stat": stat, "values": values}
    return json.dumps(line) + "\n"


PARAM, GRAD = "param_raw_moments_by_param", "grad_raw_moments_by_param"


def write_tree(folder: Path, steps: int = 10, stats=(PARAM, GRAD)) -> Path:
    """Write a tree of raw-moment files of one run and return its folder."""
    for stat in stats:
        place = folder / "training_stats" / stat
        place.mkdir(parents=True)
        text = "".join(record_line(step, stat) for step in range(1, steps + 1))
        (place / "rank0.jsonl").write_text(text)
    return folder


def append_line(folder: Path, step: int, stat: str = PARAM, text: str | None = None) -> None:
    """Append a record, or some text, as a training does."""
    with open(folder / "training_stats" / stat / "rank0.jsonl", "a") as file:
        file.write(record_line(step, stat) if text is None else text)
