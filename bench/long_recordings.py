"""Questions to long recordings that nobody closed: two gigabytes of traced tensors, ten million rows of each stream."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from megalens.protocol import segment_name
from megalens.runs import RunFolder

from .children import fresh
from .recordings import ITEMS, STARTED, flag_info, rows_of, tensor_rows, write_header
from .report import Measured, benchmark, worst

__all__ = ["long_recordings"]

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


@benchmark(
    "Questions to long recordings that nobody closed",
    "small files",
    rounds=(3, 1, "processes that ask each question"),
    only=("", "one of the recordings, by its words"),
)
def long_recordings(options: argparse.Namespace) -> Measured:
    """Questions to long recordings that nobody closed: two gigabytes of traced tensors, ten million rows of each stream."""
    rows = []
    for words, stream, whole, message in _recordings():
        if options.only not in words:
            continue
        folder, steps = options.folder / "run", whole // (100 if options.quick else 1)
        size = _write(folder, stream, steps, message())
        for question, code in _QUESTIONS[stream].items():
            # In a process of its own, which has opened nothing before.
            asking = _ASK.format(flag=_FLAG, question=code)
            seconds = [fresh(asking, folder, steps) for _ in range(options.rounds)]
            rows.append(worst(f"{words} ({size / 1e6:,.0f} MB): {question}", seconds, f"≤ {_MOST_SECONDS:g}"))
            print(rows[-1].what, f"{max(seconds):.2f}", flush=True)
        shutil.rmtree(folder)
    how = (
        "Made-up recordings as a hub that was killed leaves them, sealed segments and the tail of what is newer, in the system's file cache and on the disk. Each question is asked in a process of its own, which has loaded its "
        f"libraries and opens the run first; the worst of {options.rounds} counts."
    )
    return Measured(rows, how)


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
    rng = np.random.default_rng(0)
    whole = {name: rng.uniform(1, 2, rows) for name in ("mean", "m2", "m3", "m4", "min", "max")}
    return tensor_rows(
        rows,
        [1, values // 4, 4],
        [2, 1024, 4096],
        layer=[at % _LAYERS for at in range(rows)],
        flag=[(_FLAG, "HiddenStates")[at // _LAYERS] for at in range(rows)],
        count=8e6,
        compression_error=0,
        **whole,
    )


def _moments(rows: int) -> pa.RecordBatch:
    names = [f"decoder.layers.{at // 4}.{ITEMS[at % 4]}.weight" for at in range(rows // 2)]
    return rows_of(
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
    units = ["", "", "", "1/s", *[""] * 6]
    return rows_of("scalars", len(names), time=STARTED, name=names, value=1.5, unit=units)


def _write(folder: Path, stream: str, steps: int, batch: pa.RecordBatch) -> int:
    """Write a run folder with the rows of every step, and return the bytes of its stream."""
    flags = [flag_info(name, list(range(_LAYERS))) for name in (_FLAG, "HiddenStates")]
    statistics = {"grad": 1, "param": 1}
    write_header(folder, state="training", ended=None, flags=flags, statistics=statistics)
    (folder / stream).mkdir()
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
