"""Opening statistics: a tree of raw-moment JSONL against the reference's method, a line that is appended, thousands of runs, and a recording of many rows."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from megalens.runs.moments import MomentQuery, MomentSource, find_trees, rows_of

from .children import call, fresh, said
from .common import ratio, timed
from .recordings import ITEMS, write_courses, write_recording
from .report import Measured, Row, benchmark, divided, judged, worst

__all__ = ["large_runs", "opening", "reference"]

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
    ours, theirs = [], []
    for turn in range(rounds):
        cache = home / f"cache{turn}"
        ours.append(_timed(mine, cache))
        theirs.append(_timed(other, cache))
        shutil.rmtree(cache, ignore_errors=True)
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
    source = MomentSource(rows_of(find_trees(tree)[0]))
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
