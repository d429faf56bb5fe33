"""Recordings of made-up rows, as large as those of long trainings, and what it costs to have them in Parquet: closing one, and sealing while every core trains.

Sealing needs Linux, whose scheduler has a class for what runs on idle cores only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, MutableSequence
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from megalens.hub.recording_folder import RecordingFolder
from megalens.hub.segment_file import seal_tail
from megalens.protocol import (
    STREAMS,
    TAIL,
    CheckedBody,
    FrameChecker,
    compressor_infos,
    decode_frame,
    encode_frame,
    encode_message,
    segment_name,
    stream_schema,
    stream_segments,
)

from .common import Measured, Row, benchmark, divided, judged, processor_seconds, ratio, trimmed_mean

__all__ = [
    "FLAGS",
    "ITEMS",
    "STARTED",
    "announcement",
    "flag_info",
    "joining",
    "rows_of",
    "sealing",
    "tensor_rows",
    "write_courses",
    "write_header",
    "write_recording",
    "write_segment",
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
    """Write the recording of a finished run with statistics of gradients at every step, packed as the hub packs it, and return its folder; of more than 1,000 tensors they are experts'."""
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


_Count = MutableSequence[float]
"""What a process has counted, and the processor seconds that it had for that."""

_MB = 1_000_000
_ROUNDS = 3
_MOST_COST = 0.003
_WINDOW_SECONDS = 0.2


@benchmark(
    "Sealing recordings",
    "a few small windows",
    megabytes=(400, 40, "that are recorded and closed"),
    windows=(200, 6, "triples of windows"),
)
def sealing(options: argparse.Namespace) -> Measured:
    """What it costs to have Parquet: closing a recording, and sealing while every core trains."""
    place, windows = options.folder, options.windows
    bodies = list(_bodies(place / "rows", 16 if options.quick else 320))
    rows = [_closing(place, bodies, options.megabytes), *_saturated(place / "tails", bodies, windows)]
    how = (
        f"Rows of statistics of 500 tensors. Closing: {options.megabytes} MB are recorded as fast as the recorder takes them, then closed, {_ROUNDS} times. "
        f"Saturated: a process that counts on every core; in {windows} triples of windows of {_WINDOW_SECONDS:g} s, whose order goes round, the sealer seals one tail after the other in one and is stopped in two. "
        "Of each window: what was counted for each processor second that counting and sealing had together, in which the time of other programs does not count. "
        "The figure is the trimmed mean over the triples of a stopped window over the other one; the two stopped ones over each other tell what such a run can resolve."
    )
    return Measured(rows, how)


def _bodies(place: Path, steps: int) -> Iterator[CheckedBody]:
    """Yield checked frames of statistics, one for each step."""
    write_recording(place, 500, steps)
    (segment,) = stream_segments(place, "moments")
    table = pq.read_table(segment.path).cast(STREAMS["moments"].schema)
    for step in range(1, steps + 1):
        data = encode_frame("moments", table.slice((step - 1) * 500, 500), step=step)
        yield FrameChecker().check(decode_frame(data), data)


def _closing(place: Path, bodies: list[CheckedBody], megabytes: int) -> Row:
    closing, unsealed = [], []
    for number in range(_ROUNDS):
        run = place / f"run{number}"
        folder = RecordingFolder(run)
        folder.write_description({})
        for body in cycle(bodies):
            folder.append(body)
            if folder.bytes >= megabytes * _MB:
                break
        folder.seal()
        unsealed.append(sum(path.stat().st_size for path in _tails(run)) / _MB)
        began = time.perf_counter()
        said = folder.finish()
        closing.append(time.perf_counter() - began)
        if said is not None:
            raise SystemExit(said)
        end = time.monotonic() + 120
        # A tail is removed last, once its segment counts.
        while [*(run / "moments").glob(f"*{TAIL}")]:
            if time.monotonic() > end:
                raise SystemExit("the rest was not sealed within 120 s")
            time.sleep(0.1)
        shutil.rmtree(run)
    what = f"closing {megabytes} MB, the longest of {len(closing)}"
    note = f"{fmean(unsealed):.0f} MB were not sealed yet, and are sealed by a process that goes on"
    return judged(what, max(closing), "s", "≤ 1", note, seconds=closing)


def _saturated(place: Path, bodies: list[CheckedBody], windows: int) -> Iterator[Row]:
    cores = sorted(os.sched_getaffinity(0))
    counts = [multiprocessing.Array("d", 2, lock=False) for _ in cores]
    busy = [
        multiprocessing.Process(target=_count, args=(count, core), daemon=True)
        for count, core in zip(counts, cores, strict=True)
    ]
    tail = place / "moments" / segment_name(0, 1, TAIL)
    tail.parent.mkdir(parents=True)
    size = 0
    with tail.open("wb") as file:
        size += file.write(STREAMS["moments"].schema_message)
        for message in (each for body in cycle(bodies) for each in body.messages()):
            size += file.write(message)
            if size >= 32 * _MB:
                break
    for at in range(2 * windows):
        os.link(tail, tail.with_name(segment_name(at + 1, 1, TAIL)))
    rows, found, jobs = pa.ipc.open_stream(tail.read_bytes()).read_all().num_rows, tail.stat(), place / "jobs"
    job = {"stream": "moments", "rows": rows, "file": [found.st_dev, found.st_ino]}
    jobs.write_text("".join(json.dumps({"tail": str(each), **job}) + "\n" for each in _tails(place)))
    for each in busy:
        each.start()
    with jobs.open("rb") as source:
        sealer = subprocess.Popen(
            [sys.executable, "-m", "megalens.hub.sealing"], stdin=source, stdout=subprocess.PIPE
        )
        try:
            without, with_it, used = _windows(sealer, counts, windows)
        finally:
            sealer.kill()
            sealer.wait()
            for each in busy:
                each.terminate()
    # Of each triple one window over another; what others did on the machine in a few is left out.
    cost, same = (
        ratio([one / two for one, two in zip(without[0], each, strict=True)], middle=trimmed_mean)
        for each in (with_it, without[1])
    )
    what = "time of work on saturated cores, sealing over not"
    yield divided(what, cost, f"≤ {1 + _MOST_COST:g}", unit="", by="both")
    yield divided("the same of two windows without sealing", same, unit="")
    yield Row(
        "processor time that the sealer had meanwhile",
        100 * used / (len(with_it) * _WINDOW_SECONDS * len(cores)),
        "% of all cores",
        note="more waits; from 512 MiB on a sealer of normal priority takes over",
    )
    tails = _tails(place)
    done, began = 2 * windows + 1 - len(tails), time.process_time()
    for each in tails[:5]:
        seal_tail(each, STREAMS["moments"])
    seconds = time.process_time() - began
    yield Row(
        "processor time of sealing 1 MB on idle cores",
        1000 * seconds / (5 * size / _MB),
        "ms",
        note=f"{done} tails of {size / _MB:.0f} MB were sealed beside the work",
    )


def _windows(
    sealer: subprocess.Popen[bytes], counts: list[_Count], windows: int
) -> tuple[list[list[float]], list[float], float]:
    """Return what was counted a processor second in windows without and with the sealer, and its seconds."""
    tasks = f"/proc/{sealer.pid}/task/*"
    # Its imports are behind it when it reads the first tail.
    time.sleep(3.0)
    counted: list[list[float]] = [[], [], []]
    used = 0.0
    for triple in range(windows):
        for at in range(3):
            kind = (triple + at) % 3
            os.kill(sealer.pid, signal.SIGSTOP if kind else signal.SIGCONT)
            time.sleep(0.01)
            before, had = _sums(counts), processor_seconds(tasks)
            time.sleep(_WINDOW_SECONDS)
            (done, worked), sealing = _sums(counts), processor_seconds(tasks) - had
            counted[kind].append((done - before[0]) / (worked - before[1] + sealing))
            used += 0.0 if kind else sealing
    return counted[1:], counted[0], used


def _sums(counts: list[_Count]) -> tuple[float, float]:
    """Return what all have counted, and the processor seconds of it."""
    found = []
    for count in counts:
        pair, again = count[:], None
        while pair != again:
            pair, again = count[:], pair
        found.append(pair)
    done, worked = (sum(column) for column in zip(*found, strict=True))
    return done, worked


def _count(count: _Count, core: int) -> None:
    os.sched_setaffinity(0, {core})
    done = 0
    while True:
        for _ in range(10_000):
            pass
        done += 1
        count[0], count[1] = done, time.thread_time()


def _tails(run: Path) -> list[Path]:
    return [each.path for each in stream_segments(run, "moments") if not each.sealed]
