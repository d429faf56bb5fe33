"""Opening: statistics as JSONL against the reference's method, thousands of runs, recordings of many rows, long recordings that nobody closed, and traces of PyTorch's profiler."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.profiler import ProfilerActivity, profile

import megalens
from megalens.demo import GPT
from megalens.protocol import segment_name
from megalens.runs import RunFolder
from megalens.runs.moments import MomentQuery, MomentSource, find_trees
from megalens.runs.moments import rows_of as rows_of_tree

from .common import Measured, Row, benchmark, divided, in_turns, judged, ratio, timed, worst
from .live import call, fresh, said
from .recordings import (
    ITEMS,
    STARTED,
    flag_info,
    rows_of,
    tensor_rows,
    write_courses,
    write_header,
    write_recording,
)

__all__ = ["large_runs", "long_recordings", "opening", "reference", "trace_reading"]

_MIB = 1024 * 1024
_SUMS = ("count", "sum_1", "sum_2", "sum_3", "sum_4")


@benchmark(
    "Opening statistics: JSONL, appended lines, thousands of runs",
    "small files",
    mebibytes=(1024, 4, "size of the JSONL tree"),
    rounds=(3, "times that it is opened"),
    lines=(40, 10, "lines that are appended"),
    runs=(1000, 20, "runs that are compared"),
)
def opening(options: argparse.Namespace) -> Measured:
    """Opening statistics: a tree of raw-moment JSONL against the reference's method, a line that is appended, and thousands of runs."""
    home, rounds = options.folder, options.rounds
    rows = [
        *_first_opening(home, options.mebibytes * _MIB, rounds),
        *_append(home, options.lines),
        *_comparison(home / "compared", options.runs, 10 * options.runs),
    ]
    how = (
        f"A generated tree of {options.mebibytes} MiB of JSONL (two files, {rounds} rounds in turn with the reference's method in the same run, each into an empty cache): the reference's "
        "method is Python's json, lines parsed twice (once for the columns, once for the rows), 100,000 rows a pandas batch, zstd Parquet, then DuckDB; written from its "
        "description. A round ends with the first grouped answer. Appending: from the write of a line to the answer that has it. Intervals: 95 % bootstrap over rounds."
    )
    return Measured(rows, how)


def _comparison(home: Path, runs: int, steps: int) -> list[Row]:
    """Compare many runs by their loss: with an empty cache, and again in a fresh process."""
    rng = np.random.default_rng(0)
    course = 2 + 6 * np.exp(-np.arange(steps) / steps * 4)
    for run in range(runs):
        loss = course + rng.normal(0, 0.05, steps)
        rate = np.full(steps, 1e-4)
        write_courses(
            home / "runs" / f"run-{run:04}",
            {"loss": loss, "grad_norm": rng.lognormal(0, 0.2, steps), "lr": rate},
        )
    command = [sys.executable, "-m", "megalens", "compare", str(home / "runs"), "--json"]
    cold, warm = (_timed(command, home / "cache") for _ in range(2))
    what = f"comparing {runs:,} runs of {steps:,} steps"
    return [judged(f"{what}, cold", cold, "s", "≤ 10"), judged(f"{what}, again", warm, "s", "≤ 2")]


def _first_opening(home: Path, size: int, rounds: int) -> list[Row]:
    tree = home / "run" / "training_stats"
    rows = _write_tree(tree, size)
    # Each in a process of its own, so that neither finds the other's memory warm.
    mine, other = [sys.executable, "-c", _OPEN, str(tree)], call("opening:reference", tree=tree)

    def opened(command: list[str]) -> float:
        with tempfile.TemporaryDirectory(dir=home) as cache:
            return _timed(command, Path(cache))

    ours, theirs = in_turns({"": partial(opened, mine), "other": partial(opened, other)}, rounds).values()
    _timed(mine, home / "warm")
    return [
        Row("first opening of a JSONL tree", rows / statistics.fmean(ours), "rows/s", note=f"{rows} rows"),
        Row("the reference's method", rows / statistics.fmean(theirs), "rows/s"),
        divided("rows/s over the reference's", ratio(theirs, ours), "≥ 3", by="low"),
        Row("opening it again, from the cache", _timed(mine, home / "warm"), "s"),
    ]


_OPEN = """
import sys
from megalens.runs.moments import MomentQuery, MomentSource, find_trees, rows_of
source = MomentSource(rows_of(find_trees(sys.argv[1])[0]))
source.refresh()
source.groups(MomentQuery.of("grad", by=["layer"], points=2000, series=40))
"""


def _timed(command: list[str], cache: Path) -> float:
    environment = {**os.environ, "MEGALENS_CACHE_DIR": str(cache)}
    return timed(lambda: subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL))


def _append(home: Path, times: int) -> list[Row]:
    os.environ["MEGALENS_CACHE_DIR"] = str(home / "append")
    tree = home / "run" / "training_stats"
    path = next(tree.glob("grad*/*.jsonl"))
    source = MomentSource(rows_of_tree(find_trees(tree)[0]))
    source.refresh()
    lines = path.read_text(encoding="utf-8").splitlines()[-1:]
    last = json.loads(lines[0])
    seconds = []
    query = {"by": ["layer"], "points": 2000, "series": 40}
    for _ in range(times):
        last["iter"] += 1
        text = json.dumps(last) + "\n"
        began = time.perf_counter()
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        source.refresh()
        newest = source.groups(MomentQuery.of("grad", first=last["iter"], **query)).table["step"]
        seconds.append(time.perf_counter() - began)
        assert newest.to_pylist()[-1] == last["iter"]
    source.close()
    what = "a line appended to that tree, until it is answered (worst)"
    note = f"median {statistics.median(seconds) * 1000:.0f} ms of {times}"
    return [judged(what, max(seconds) * 1000, "ms", "≤ 500", note)]


def _write_tree(tree: Path, size: int) -> int:
    names = [f"decoder.layers.{layer}.{item}.weight" for layer in range(64) for item in ITEMS]
    rng = np.random.default_rng(0)
    rows = 0
    for stat in ("grad", "param"):
        folder = tree / f"{stat}_raw_moments_by_param"
        folder.mkdir(parents=True)
        written, step = 0, 0
        with (folder / "rank7.jsonl").open("w", encoding="utf-8") as file:
            while written < size // 2:
                step += 1
                found = rng.normal(0, 1, (len(names), 4)).astype(np.float32).astype(float)
                found[:, 1], found[:, 3] = abs(found[:, 1]) + 1e4, abs(found[:, 3]) + 1e5
                values = {
                    name: {"count": 22020096.0, **dict(zip(_SUMS[1:], sums, strict=True))}
                    for name, sums in zip(names, found.tolist(), strict=True)
                }
                record = {
                    "iter": step,
                    "consumed_train_samples": 8 * step,
                    "stat": folder.name,
                    "values": values,
                }
                written += file.write(json.dumps(record) + "\n")
                rows += len(names)
    return rows


# The reference's method, from its description in words: every line is parsed twice, rows go through pandas in batches, DuckDB reads the Parquet.


def reference(tree: str) -> None:
    """Open a tree in the reference's way, into the cache, and answer what was asked."""
    import duckdb

    cache = Path(os.environ["MEGALENS_CACHE_DIR"]) / "reference"
    cache.mkdir(parents=True)
    for place, path in enumerate(sorted(Path(tree).glob("*/*.jsonl"))):
        fields: dict[str, None] = {}
        for row in _reference_rows(path):
            fields.update(dict.fromkeys(row))
        _reference_parquet(path, list(fields), cache / f"{place}.parquet")
    with duckdb.connect() as connection:
        answer = connection.execute(
            f"SELECT iter, layer_index, sum(count), sum(sum_1), sum(sum_2), sum(sum_3), sum(sum_4) FROM read_parquet('{cache}/*.parquet') "
            "WHERE metric = 'grad_raw_moments_by_param' GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    said(len(answer))


def _reference_rows(path: Path) -> Iterator[dict[str, Any]]:
    metric = path.parent.name
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            record = json.loads(line)
            for name, entry in record["values"].items():
                tokens = name.replace("/", ".").split(".")
                at = next((place for place, token in enumerate(tokens) if token.isdigit()), None)
                items = tokens if at is None else tokens[at + 1 :]
                yield {
                    "metric": record.get("stat", metric),
                    "iter": record["iter"],
                    "consumed_train_samples": record.get("consumed_train_samples"),
                    "source_line": number,
                    "source_file": path.name,
                    "name": name,
                    "layer_index": None if at is None else int(tokens[at]),
                    "layer_stack": "(global)" if at is None else ".".join(tokens[:at]),
                    "item_type": ".".join(items),
                    "item_family": items[0],
                    "item_kind": items[-1],
                    **{key: entry.get(key, 0.0) for key in _SUMS},
                }


def _reference_parquet(path: Path, fields: list[str], target: Path) -> None:
    import pandas as pd

    batch: list[dict[str, Any]] = []
    writer: pq.ParquetWriter | None = None

    def flush() -> None:
        nonlocal writer
        table = pa.Table.from_pandas(pd.DataFrame(batch, columns=fields), preserve_index=False)
        writer = writer or pq.ParquetWriter(target, table.schema, compression="zstd")
        writer.write_table(table)
        batch.clear()

    for row in _reference_rows(path):
        batch.append(row)
        if len(batch) == 100_000:
            flush()
    if batch:
        flush()
    if writer is not None:
        writer.close()


_PICTURE = """
import json, resource, sys, time
from pathlib import Path
from megalens.runs.moments import *
import duckdb, numpy, pyarrow.parquet

def ask(*by):
    query = MomentQuery.of_request("grad", by=by, points=2000, series=40, lean=True)
    assert source.groups(query).steps_total == int(sys.argv[2])

began = time.perf_counter()
source = MomentSource(RecordedRows(Path(sys.argv[1])))
source.refresh()
source.index()
ask("layer")
layers = time.perf_counter() - began
ask()
ask("family")
overview = time.perf_counter() - began - layers
print(json.dumps([layers, overview, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


@benchmark(
    "The first picture of large recordings", "thousands of rows", rounds=(5, 1, "pictures of each recording")
)
def large_runs(options: argparse.Namespace) -> Measured:
    """The first picture of the statistics of a recording of 10 and of 100 million rows."""
    sizes = ((20, 2000), (500, 40)) if options.quick else ((100, 100_000), (25_000, 400), (1_000, 100_000))
    rows = []
    for series, steps in sizes:
        folder = write_recording(options.folder / f"recording-{series}", series, steps)
        runs = [fresh(_PICTURE, folder, steps) for _ in range(options.rounds + 1)][1:]
        shutil.rmtree(folder)
        seconds, overview, memory = zip(*runs, strict=True)
        what = f"{series:,} series × {steps:,} steps: index and first grouped, thinned answer (worst of {options.rounds})"
        more = f"total and families, which the panel shows first, {max(overview):.2f} s more; {max(memory):.0f} MiB at most"
        rows.append(worst(what, seconds, "≤ 2", more))
    how = "A packed recording in the system's file cache; a fresh process's index and L2 by layer, 2000 points a series, 40 series."
    return Measured(rows, how)


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
)
def long_recordings(options: argparse.Namespace) -> Measured:
    """Questions to long recordings that nobody closed: two gigabytes of traced tensors, ten million rows of each stream."""
    rows = []
    for words, stream, whole, message in _recordings():
        folder, steps = options.folder / "run", whole // (100 if options.quick else 1)
        size = _write_run(folder, stream, steps, message())
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


def _write_run(folder: Path, stream: str, steps: int, batch: pa.RecordBatch) -> int:
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


def _profiled() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a real profile of the demo model: what stands around its events, and these."""
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 200, (4, 128))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as profiler:
        for _ in range(3):
            model(ids).logsumexp(-1).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/t.json")
        whole = json.loads(Path(folder, "t.json").read_bytes())
    return whole, whole.pop("traceEvents")


def _write_traces(folder: Path, ranks: int, size: int, packed: bool) -> int:
    """Write a file of about ``size`` bytes for each rank, the events again and again; return how many bytes of JSON that is."""
    around, events = _profiled()
    starts = [float(each["ts"]) for each in events if "ts" in each]
    lasts = max(starts) - min(start for start in starts if start)
    body: list[str] = []
    while sum(map(len, body)) < size:
        shift = len(body) * (lasts + 1000)
        moved = ({**each, "ts": each["ts"] + shift} if "ts" in each else each for each in events)
        body.append(",\n".join(json.dumps(each, indent=4) for each in moved))
    total = 0
    for rank in range(ranks):
        about = {"backend": "gloo", "rank": rank, "world_size": ranks}
        head = json.dumps({"distributedInfo": about, **around}, indent=2).removesuffix("\n}")
        text = "".join((head, ',\n  "traceEvents": [\n', ",\n".join(body), "\n  ]}\n")).encode()
        path = folder / f"rank{rank}.pt.trace.json{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(text, 1) if packed else text)
        total += len(text)
    return total


def _ours(folder: Path) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["MEGALENS_CACHE_DIR"] = cache
        began = time.perf_counter()
        with megalens.open(folder) as run:
            count = run.table("spans").num_rows
        return time.perf_counter() - began, count


def _json(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            json.load(file)


@benchmark(
    "Opening traces of PyTorch's profiler",
    "16 MB",
    megabytes=(1000, 16, "of JSON in all"),
    ranks=(8, "files"),
    rounds=(3, "times that each is opened"),
)
def trace_reading(options: argparse.Namespace) -> Measured:
    """How fast traces of PyTorch's profiler are opened, beside Python's json: files of one job in one run."""
    rows = []
    for packed in (False, True):
        folder = options.folder / f"packed-{packed}"
        folder.mkdir()
        size = _write_traces(folder, options.ranks, options.megabytes * 1_000_000 // options.ranks, packed)
        ways = {"json": partial(timed, partial(_json, folder)), "ours": partial(_ours, folder)}
        theirs, opened = in_turns(ways, options.rounds).values()
        ours, (count, *_) = zip(*opened, strict=True)
        shutil.rmtree(folder)
        name = "packed with gzip" if packed else "plain"
        note = f"{size / 1e9:.2f} GB of JSON, {count} spans"
        rows += [
            Row(f"{name}: opened as a run", fmean(ours), "s", note=note),
            Row(f"{name}: json.load of each file, and nothing else", fmean(theirs), "s"),
            divided(f"{name}: json over ours", ratio(theirs, ours), "≥ 3", by="low"),
        ]
    how = (
        f"{options.ranks} files, made of a real profile of the demo model (operations with shapes and stacks) that is repeated, opened by `megalens.open` with an empty cache, "
        f"until its spans are a table; beside it `json.load` of the same files, which makes no spans of them. {options.rounds} rounds, in turn."
    )
    return Measured(rows, how)
