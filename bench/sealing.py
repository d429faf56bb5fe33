"""What it costs to have Parquet: closing a recording, and sealing while every core trains.

Needs Linux, whose scheduler has a class for what runs on idle cores only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, MutableSequence
from pathlib import Path
from statistics import fmean

import pyarrow as pa
import pyarrow.parquet as pq

from megalens.hub.recording_folder import RecordingFolder
from megalens.hub.segment_file import seal_tail
from megalens.protocol import (
    STREAMS,
    TAIL,
    CheckedBody,
    FrameChecker,
    decode_frame,
    encode_frame,
    segment_name,
    stream_segments,
)

from .common import Ratio, processor_seconds, ratio, trimmed_mean
from .recordings import write_recording
from .report import Measured, Row, benchmark, divided, judged

__all__ = ["sealing"]

_Count = MutableSequence[float]
"""What a process has counted, and the processor seconds that it had for that."""

_MB = 1_000_000
_CLOSE_SECONDS = 1.0
_ROUNDS = 3
_MOST_COST = 0.003
_WINDOW_SECONDS = 0.2
_LEAST_WINDOWS = 6


@benchmark(
    "Sealing recordings",
    "a few small windows",
    seconds=(240.0, "about how long it takes"),
    megabytes=(400, 40, "that are recorded and closed"),
    windows=(200, 6, "triples of windows"),
)
def sealing(options: argparse.Namespace) -> Measured:
    """What it costs to have Parquet: closing a recording, and sealing while every core trains."""
    place, windows, end = options.folder, options.windows, time.monotonic() + options.seconds
    bodies = list(_bodies(place / "rows", 16 if options.quick else 320))
    rows = [
        _closing(place, bodies, options.megabytes, end - options.seconds / 2),
        *_saturated(place, bodies, windows, end),
    ]
    how = (
        f"Rows of statistics of 500 tensors. Closing: {options.megabytes} MB are recorded as fast as the recorder takes them, then closed, up to {_ROUNDS} times. "
        f"Saturated: a process that counts on every core; in up to {windows} triples of windows of {_WINDOW_SECONDS:g} s, whose order goes round, the sealer seals one tail after the other in one and is stopped in two. "
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


def _recorded(place: Path, bodies: list[CheckedBody], megabytes: float) -> RecordingFolder:
    folder = RecordingFolder(place)
    folder.write_description({})
    at = 0
    while folder.bytes < megabytes * _MB and at < 1_000_000:
        folder.append(bodies[at % len(bodies)])
        at += 1
    return folder


def _closing(place: Path, bodies: list[CheckedBody], megabytes: int, end: float) -> Row:
    closing, unsealed = [], []
    while len(closing) < _ROUNDS and not (closing and time.monotonic() > end):
        run = place / f"run{len(closing)}"
        folder = _recorded(run, bodies, megabytes)
        folder.seal()
        unsealed.append(sum(path.stat().st_size for path in _tails(run)) / _MB)
        began = time.perf_counter()
        said = folder.finish()
        closing.append(time.perf_counter() - began)
        if said is not None:
            raise SystemExit(said)
        _until_sealed(run)
        shutil.rmtree(run)
    what = f"closing {megabytes} MB, the longest of {len(closing)}"
    note = f"{fmean(unsealed):.0f} MB were not sealed yet, and are sealed by a process that goes on"
    return judged(what, max(closing), "s", f"≤ {_CLOSE_SECONDS:g}", note, seconds=closing)


def _saturated(place: Path, bodies: list[CheckedBody], windows: int, end: float) -> Iterator[Row]:
    cores = sorted(os.sched_getaffinity(0))
    counts = [multiprocessing.Array("d", 2, lock=False) for _ in cores]
    busy = [
        multiprocessing.Process(target=_count, args=(count, core), daemon=True)
        for count, core in zip(counts, cores, strict=True)
    ]
    tail = _tail_of(place / "tails", bodies, 32)
    size = tail.stat().st_size
    jobs = place / "jobs"
    for at in range(2 * windows):
        os.link(tail, tail.with_name(segment_name(at + 1, 1, TAIL)))
    rows = pa.ipc.open_stream(tail.read_bytes()).read_all().num_rows
    jobs.write_text(
        "".join(_job(each.path, rows) for each in stream_segments(place / "tails", "moments")),
        encoding="utf-8",
    )
    for each in busy:
        each.start()
    with jobs.open("rb") as source:
        sealer = subprocess.Popen(
            [sys.executable, "-m", "megalens.hub.sealing"], stdin=source, stdout=subprocess.PIPE
        )
        try:
            without, with_it, used = _windows(sealer, counts, windows, end)
        finally:
            sealer.kill()
            sealer.wait()
            for each in busy:
                each.terminate()
    cost, same = (_over(without[0], each) for each in (with_it, without[1]))
    what = "time of work on saturated cores, sealing over not"
    yield divided(what, cost, f"≤ {1 + _MOST_COST:g}", unit="", by="both")
    yield divided("the same of two windows without sealing", same, unit="")
    yield Row(
        "processor time that the sealer had meanwhile",
        100 * used / (len(with_it) * _WINDOW_SECONDS * len(cores)),
        "% of all cores",
        note="more waits; from 512 MiB on a sealer of normal priority takes over",
    )
    done = len([each for each in stream_segments(place / "tails", "moments") if each.sealed])
    began, seconds = resource.getrusage(resource.RUSAGE_SELF), 0.0
    for segment in [each for each in stream_segments(place / "tails", "moments") if not each.sealed][:5]:
        seal_tail(segment.path, STREAMS["moments"])
    now = resource.getrusage(resource.RUSAGE_SELF)
    seconds = now.ru_utime + now.ru_stime - began.ru_utime - began.ru_stime
    yield Row(
        "processor time of sealing 1 MB on idle cores",
        1000 * seconds / (5 * size / _MB),
        "ms",
        note=f"{done} tails of {size / _MB:.0f} MB were sealed beside the work",
    )


def _windows(
    sealer: subprocess.Popen[bytes], counts: list[_Count], windows: int, end: float
) -> tuple[list[list[float]], list[float], float]:
    """Return what was counted a processor second in windows without and with the sealer, and its seconds."""
    tasks = f"/proc/{sealer.pid}/task/*"
    # Its imports are behind it when it reads the first tail.
    time.sleep(3.0)
    counted: list[list[float]] = [[], [], []]
    used = 0.0
    for triple in range(windows):
        if time.monotonic() > end and triple >= _LEAST_WINDOWS:
            break
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


def _over(above: list[float], below: list[float]) -> Ratio:
    """Return one window over the other of its triple; what others did on the machine in a few is left out."""
    each = [one / other for one, other in zip(above, below, strict=True)]
    return ratio(each, middle=trimmed_mean)


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


def _tail_of(place: Path, bodies: list[CheckedBody], megabytes: float) -> Path:
    place.mkdir(parents=True)
    tail = place / "moments" / segment_name(0, 1, TAIL)
    tail.parent.mkdir()
    size = at = 0
    with tail.open("wb") as file:
        size += file.write(STREAMS["moments"].schema_message)
        while size < megabytes * _MB:
            for message in bodies[at % len(bodies)].messages():
                size += file.write(message)
            at += 1
    return tail


def _job(tail: Path, rows: int) -> str:
    found = tail.stat()
    job = {"tail": str(tail), "stream": "moments", "rows": rows, "file": [found.st_dev, found.st_ino]}
    return json.dumps(job) + "\n"


def _tails(run: Path) -> list[Path]:
    return [each.path for each in stream_segments(run, "moments") if not each.sealed]


def _until_sealed(run: Path) -> None:
    end = time.monotonic() + 120
    # A tail is removed last, once its segment counts.
    while [*(run / "moments").glob(f"*{TAIL}")]:
        if time.monotonic() > end:
            raise SystemExit("the rest was not sealed within 120 s")
        time.sleep(0.1)
