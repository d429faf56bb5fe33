"""Questions to long recordings that nobody closed: two gigabytes of traced tensors, ten million rows of each stream.

Run ``python -m bench.long_recordings`` (``--quick`` for small files, which prove only that it works).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.common import Row, write_results
from bench.recordings import ITEMS
from megalens.protocol import segment_name, stream_schema
from megalens.runs import RunFolder

__all__ = ["main"]

_STARTED = 1_795_000_000.0
_LAYERS = 32
_FLAG = "MLP1_mat_mul"
_MOST_SECONDS = 2.0
# Of a segment before it is packed, and of its row groups.
_SEGMENT_BYTES = 32_000_000
_GROUP_BYTES = 16_000_000

# What is asked of each stream, in a process of its own that has opened nothing before: the words of the result, and the question.
_QUESTIONS: dict[str, dict[str, str]] = {
    "tensors": {
        "what there is, and one layer at the newest step": "a.index(); a.stream('tensors', {**one, 'steps': [newest, newest]})",
        "one layer at ten steps in the middle": "a.stream('tensors', {**one, 'steps': [middle, middle + 9]})",
        "RMS of one layer over all steps": "ask('tensor_lines', {**one, 'rank': 'lowest', 'statistic': 'rms', 'points': 2000})",
        "RMS of all layers over all steps": "ask('tensor_lines', {'flag': flag, 'rank': 'lowest', 'statistic': 'rms', 'points': 2000})",
        "what the run is, and whether it was cut short": "a.detail()",
    },
    "moments": {
        "what there is, and L2 by layer over all steps": "a.moments_index(); ask('moments_groups', {'stat': 'grad', 'statistic': 'l2', 'by': ['layer'], 'points': 2000, 'series': 40})",
        "one layer at a thousand steps": "a.moments_index(); ask('moments_groups', {'stat': 'grad', 'statistic': 'l2', 'by': ['layer'], 'where': {'layer': '3'}, 'steps': [middle, middle + 999]})",
        "what the run is, and whether it was cut short": "a.detail()",
    },
    "scalars": {
        "one name over all steps": "ask('scalar_lines', {'names': ['loss'], 'points': 2000})",
        "all names over all steps": "ask('scalar_lines', {'points': 2000})",
        "one name at a thousand steps": "ask('scalar_lines', {'names': ['loss'], 'steps': [middle, middle + 999]})",
        "what the run is, and whether it was cut short": "a.detail()",
    },
}
_ASK = """
import sys, time
import numpy, pyarrow, pyarrow.acero, pyarrow.compute, pyarrow.dataset, pyarrow.parquet
from megalens.runs import open_run
from megalens.runs.answers import RunAnswers
import megalens.runs.moments
flag, folder, newest = {flag!r}, sys.argv[1], int(sys.argv[2])
one, middle = {{'flag': flag, 'layers': [3]}}, newest // 2
began = time.perf_counter()
a = RunAnswers(open_run(folder))
ask = lambda method, request: a.answer(method, {{'request': request}})
{question}
print(time.perf_counter() - began)
"""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/long_recordings.json``; return the page of all results."""
    parser = argparse.ArgumentParser(prog="python -m bench.long_recordings", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--rounds", type=int, default=3, help="processes that ask each question (%(default)s)"
    )
    parser.add_argument("--only", help="one of the recordings, by its words")
    options = parser.parse_args(arguments)
    share = 100 if options.quick else 1
    rounds = 1 if options.quick else options.rounds
    load = os.getloadavg()[0]
    rows = []
    for words, stream, steps, message in _recordings():
        if options.only and options.only not in words:
            continue
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home) / "run"
            size = _write(folder, stream, steps // share, message())
            for question, code in _QUESTIONS[stream].items():
                seconds = [_asked(folder, steps // share, code) for _ in range(rounds)]
                worst = max(seconds)
                rows.append(
                    Row(
                        f"{words} ({size / 1e6:,.0f} MB): {question}",
                        worst,
                        "s",
                        target=f"≤ {_MOST_SECONDS:g}",
                        met=worst <= _MOST_SECONDS,
                        note=f"median {statistics.median(seconds):.2f} s",
                    )
                )
                print(rows[-1].what, f"{worst:.2f}", flush=True)
            shutil.rmtree(folder)
    return write_results(
        "long_recordings",
        "Questions to long recordings that nobody closed",
        rows,
        how=(
            "Made-up recordings as a hub that was killed leaves them, sealed segments and the tail of what is newer, in the system's file cache and on the disk. Each question is asked in a process of its own, which has loaded its "
            f"libraries and opens the run first; the worst of {rounds} counts. Before it began, {load:.1f} other processes on average wanted a processor."
        ),
        quick=options.quick,
    )


def _recordings() -> list[tuple[str, str, int, Callable[[], pa.RecordBatch]]]:
    """Return words, stream, steps and what makes the message of a step of each recording."""
    return [
        ("2 GB of tensors in large messages", "tensors", 2_560, lambda: _tensors(64, 3072)),
        ("2 GB of tensors in small messages", "tensors", 68_000, lambda: _tensors(64, 64)),
        ("ten million tensors", "tensors", 156_250, lambda: _tensors(64, 4)),
        ("ten million moments", "moments", 22_320, lambda: _moments(448)),
        ("ten million scalars", "scalars", 1_000_000, _scalars),
    ]


def _tensors(rows: int, values: int) -> pa.RecordBatch:
    layers = [at % _LAYERS for at in range(rows)]
    rng = np.random.default_rng(0)
    whole = {name: rng.uniform(1, 2, rows) for name in ("mean", "m2", "m3", "m4", "min", "max")}
    return _batch(
        "tensors",
        rows,
        layer=layers,
        phase="train",
        **{"pass": "forward"},
        flag=[(_FLAG, "HiddenStates")[at // _LAYERS] for at in range(rows)],
        compressor="Tile(tiles=96, reduction='mean')",
        source_shape=[[2, 1024, 4096]] * rows,
        shape=[[1, values // 4, 4]] * rows,
        values=list(rng.normal(0, 1, (rows, values)).astype(np.float32)),
        labels=[[]] * rows,
        count=8e6,
        **whole,
    )


def _moments(rows: int) -> pa.RecordBatch:
    names = [f"decoder.layers.{at // 4}.{ITEMS[at % 4]}.weight" for at in range(rows // 2)]
    return _batch(
        "moments",
        rows,
        samples=-1,
        stage=-1,
        stat=["grad"] * (rows // 2) + ["param"] * (rows // 2),
        name=names * 2,
        count=1e6,
        m2=1e6,
        m4=3e6,
        gradient_stage="pre_clip",
        loss_scale=1,
    )


def _scalars() -> pa.RecordBatch:
    names = ["loss", "lr", "grad_norm", "tokens_per_second", *(f"megalens/figure_{at}" for at in range(6))]
    return _batch(
        "scalars", len(names), time=_STARTED, name=names, value=1.5, unit=["", "", "", "1/s", *[""] * 6]
    )


def _batch(stream: str, rows: int, **columns: Any) -> pa.RecordBatch:
    """Return rows of a stream: of a column a list, or what all of them have."""
    arrays = []
    for field in stream_schema(stream):
        column = columns.get(field.name, "" if pa.types.is_string(field.type) else 0)
        column = column if isinstance(column, list | np.ndarray) else [column] * rows
        arrays.append(pa.array(column, field.type))
    return pa.record_batch(arrays, schema=stream_schema(stream))


def _write(folder: Path, stream: str, steps: int, batch: pa.RecordBatch) -> int:
    """Write a run folder with the rows of every step, and return the bytes of its stream."""
    (folder / stream).mkdir(parents=True)
    flags = [
        {
            "name": name,
            "title": name,
            "layers": list(range(_LAYERS)),
            "parts": [],
            "axes": [],
            "bytes_per_layer": None,
        }
        for name in (_FLAG, "HiddenStates")
    ]
    header = {
        "format": 2,
        "run": {"id": "run", "name": "run", "started": _STARTED},
        "state": "training",
        "ended": None,
        "flags": flags,
        "statistics": {"grad": 1, "param": 1},
        "missing_steps": [],
    }
    (folder / "run.json").write_text(json.dumps(header), encoding="utf-8")
    together = max(1, _SEGMENT_BYTES // batch.nbytes)
    for number, first in enumerate(range(1, steps + 1, together)):
        messages = [_of_step(batch, at) for at in range(first, min(first + together, steps + 1))]
        place = folder / stream / segment_name(number, first, "")
        if len(messages) == together:
            table = pa.Table.from_batches(messages)
            size = max(1, _GROUP_BYTES // batch.nbytes) * batch.num_rows
            pq.write_table(table, place.with_suffix(".parquet"), compression="zstd", row_group_size=size)
        else:
            # Without the mark of an end.
            with place.with_suffix(".arrows").open("wb") as file:
                file.writelines([batch.schema.serialize(), *(each.serialize() for each in messages)])
    # Whoever asks has no part in writing to the disk what was just made.
    os.sync()
    return RunFolder(folder).bytes()


def _of_step(batch: pa.RecordBatch, step: int) -> pa.RecordBatch:
    at = batch.schema.get_field_index("step")
    field = batch.schema.field(at)
    return batch.set_column(at, field, pa.array(np.full(batch.num_rows, step), field.type))


def _asked(folder: Path, newest: int, question: str) -> float:
    """Return the seconds that a fresh process takes."""
    code = _ASK.format(flag=_FLAG, question=question)
    found = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(newest)], check=True, capture_output=True, text=True
    )
    return float(found.stdout)


if __name__ == "__main__":
    print(main().read_text(encoding="utf-8"))
