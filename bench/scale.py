"""What a billion rows and ten thousand ranks cost, computed from what is measured here.

Measured are the smallest parts: a row that is read on a worker, an empty task, a frame into a hub and out of it, a recording of a job. A simulation queues them as
the product does: tasks at free workers, frames at a hub that does one thing at a time. It is held against one case that is measured too.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from megalens.runs import open_run
from megalens.runs.dask_engine import DaskEngine
from megalens.runs.moments.grouping import planned

from . import engine, hub_load
from .common import timed
from .report import RESULTS, Measured, Row, benchmark

__all__ = ["Costs", "computed", "question_seconds", "scale", "step_of", "table", "through"]

_MILLION, _BILLION = 1_000_000, 1_000_000_000
_PERIOD = 2.0
_WORKERS = (1, 2, 16, 64, 256)
_PRODUCERS = 10_000
# Three rows of 96 values, of which ``bench.wire`` has 12 in 10.2 kB.
_FRAME_BYTES = 3 * 10_200 / 12


@dataclass(frozen=True)
class Costs:
    """What is measured, in seconds of one core unless it says bytes."""

    row: float
    """Reading and merging a row of statistics on a worker."""
    task: float
    """Client and scheduler, for a task."""
    row_bytes: float
    """A row in a sealed segment."""
    frame: float
    """A frame of a producer into a hub that records, with the producer's part of statuses."""
    sent: float
    """The same out to one viewer."""
    byte: float
    """A byte of a large frame into a hub and out to one viewer, as ``bench.wire`` has measured it."""
    recording: float
    """Opening a job for the first time, for each of its recordings."""
    known: float
    """The same once it was opened before."""


def question_seconds(rows: int, workers: int, costs: Costs) -> float:
    """Return how long all rows are read: tasks are handed out one by one, each to the worker that is free first."""
    share = max(
        planned._TASK_ROWS,
        min(rows // max(planned._TASKS, planned._TASKS_A_WORKER * workers), planned._MOST_TASK_ROWS),
    )
    tasks = -(-rows // share)
    free = [0.0] * workers
    for number in range(tasks):
        # Client and scheduler are one core.
        begun = max(heapq.heappop(free), number * costs.task)
        heapq.heappush(free, begun + share * costs.row)
    return max(free)


Times = NDArray[np.float64]


def through(arrived: Times, service: float) -> Times:
    """Return when frames have left a hub that serves one after the other, in the order in which they came."""
    number = np.arange(len(arrived))
    return service * (number + 1) + np.maximum.accumulate(np.sort(arrived) - service * number)


@dataclass(frozen=True)
class Step:
    """A step in which all producers send a frame at once.

    ``late`` is when the last frame has left for the viewers, ``busy`` the share of its time that the busiest hub works.
    """

    late: float
    busy: float


def step_of(
    producers: int, viewers: int, costs: Costs, leaves: int = 0, relays: int = 0, joins: bool = False
) -> Step:
    """Return a step through one hub; or with ``leaves`` hubs that each pass the frames of their producers on to it, where they join them as one frame, and with
    ``relays`` that have the viewers.
    """
    below = through(np.zeros(producers // max(1, leaves)), costs.frame + costs.sent)
    arrived = np.tile(below, leaves) if leaves else np.zeros(producers)
    root = costs.frame + (relays or viewers) * costs.sent
    if joins:
        arrived = np.repeat(below[-1:], leaves)
        root = producers // leaves * _FRAME_BYTES * costs.byte * (1 + (relays or viewers))
    left = through(arrived, root)
    busiest = max(root * len(arrived), (producers // leaves) * (costs.frame + costs.sent) if leaves else 0.0)
    if relays:
        relay = costs.frame + -(-viewers // relays) * costs.sent
        left = through(left, relay)
        busiest = max(busiest, relay * producers)
    return Step(float(left[-1]), busiest / _PERIOD)


def computed(costs: Costs) -> list[Row]:
    """Return what the simulation says."""
    rows = [
        Row(f"computed: 1 billion rows, workers: {workers}", question_seconds(_BILLION, workers, costs), "s")
        for workers in _WORKERS
    ]
    rows.append(Row("computed: 1 billion rows on disk", _BILLION * costs.row_bytes / 1e9, "GB"))
    rows += [
        Row("computed: 10,000 recordings opened as one job, first", _PRODUCERS * costs.recording, "s"),
        Row("computed: 10,000 recordings opened as one job, again", _PRODUCERS * costs.known, "s"),
    ]
    for what, viewers, leaves, relays, joins in SHAPES:
        step = step_of(_PRODUCERS, viewers, costs, leaves, relays, joins)
        name = f"computed: 10,000 producers, {what}, {viewers} viewer{'s' if viewers > 1 else ''}"
        rows.append(Row(f"{name}: a step late", step.late, "s"))
        rows.append(Row(f"{name}: the busiest hub", 100 * step.busy, "% of one core"))
    return rows


SHAPES = (
    ("one hub", 1, 0, 0, False),
    ("one hub", 50, 0, 0, False),
    ("10 hubs below one", 50, 10, 0, False),
    ("10 hubs below one and 10 above it", 50, 10, 10, False),
    ("10 hubs below one that join the frames of a step", 1, 10, 0, True),
    ("10 hubs below one that join the frames of a step", 50, 10, 0, True),
)


@benchmark(
    "A billion rows and ten thousand ranks, computed from measured parts",
    "small parts",
    steps=(12, 4, "steps of each load of a hub"),
    millions=(20, 2, "millions of rows"),
    recordings=(1000, 20, "of the job"),
)
def scale(options: argparse.Namespace) -> Measured:
    """What a billion rows and ten thousand ranks cost, computed from what is measured here."""
    parts = _rows_and_tasks(options.folder / "rows", options.millions)
    parts |= _job(options.folder / "job", options.recordings)
    small, large, few, many = (20, 60, 2, 6) if options.quick else (250, 1000, 2, 50)
    loads = {
        (producers, viewers): _hub(options.folder, producers, viewers, options.steps)
        for producers, viewers in ((small, few), (small, many), (large, few), (large, many))
    }
    held_out = loads.pop((large, many))
    of, busy = np.array(list(loads)), np.array(list(loads.values()))
    # Shares of what was measured, so that small loads count as large ones do.
    parts_of = np.stack([of[:, 0], of.prod(axis=1)], axis=1) / busy[:, None]
    frame, sent = np.linalg.lstsq(parts_of, np.ones(len(of)), rcond=None)[0]
    costs = Costs(**parts, frame=float(frame), sent=float(sent), byte=_byte())
    model = step_of(large, many, costs).busy
    rows = [
        Row("measured: a row read and merged by a worker", costs.row * 1e9, "ns", extra=asdict(costs)),
        Row("measured: a task, of client and scheduler", costs.task * 1e3, "ms"),
        Row("measured: a row on disk", costs.row_bytes, "bytes"),
        Row("measured: a recording of a job opened first", costs.recording * 1e3, "ms"),
        Row("measured: a recording of a job opened again", costs.known * 1e3, "ms"),
        Row("measured: a frame into a hub", costs.frame * 1e6, "µs"),
        Row("measured: a frame out of a hub, for each viewer", costs.sent * 1e6, "µs"),
        Row("measured: a megabyte through a hub to one viewer", costs.byte * 1e9, "ms"),
        *(
            Row(f"measured: one hub, {p:,} producers, {v} viewers", 100 * value / _PERIOD, "% of one core")
            for (p, v), value in [*loads.items(), ((large, many), held_out)]
        ),
        Row(
            f"computed: one hub, {large:,} producers, {many} viewers",
            100 * model,
            "% of one core",
            note="not among what the costs are from: beside what was measured",
        ),
        *computed(costs),
    ]
    how = (
        "A row: 20 million rows of statistics on a cluster of one worker process, a question for which all are read, the least processor time of 3. A task: 500 "
        "empty ones. A recording: a job of 1,000 opened in a fresh cache, then again. A frame: hubs that record, every 2 s a frame of 3 rows of 96 values from "
        "each producer at once; processor time of the hub, fitted to a cost a frame and a cost a frame and viewer. Computed: tasks at free workers, "
        "frames at hubs that serve one at a time."
    )
    for kind in ("measured", "computed"):
        print(table([asdict(row) for row in rows], kind))
    return Measured(rows, how)


def _rows_and_tasks(home: Path, millions: int) -> dict[str, float]:
    engine._job(home, millions * _MILLION // 10, 10)
    size = sum(file.stat().st_size for file in (home / "rank0" / "moments").iterdir())
    with engine._cluster(1) as client, open_run(f"{home}/*", engine=client) as run:
        run.moments(**engine._QUESTION)
        busy = []
        for _ in range(3):
            before = sum(engine._processor(client).values())
            run.moments(**engine._QUESTION)
            busy.append(sum(engine._processor(client).values()) - before)
        there = DaskEngine(client)
        began = time.process_time()
        # As large as what a question sends with each task.
        many = [(number, os.urandom(80_000)) for number in range(500)]
        for _ in there.results(_nothing, many, None):
            pass
        task = (time.process_time() - began) / len(many)
    rows = millions * _MILLION
    return {"row": min(busy) / rows, "task": task, "row_bytes": size / (rows / 10)}


def _byte() -> float:
    rows = json.loads((RESULTS / "wire.json").read_text(encoding="utf-8"))["rows"]
    of = ("12 tensors × 96 × 128 values", "bytes through the hub")
    speed: float = next(row["value"] for row in rows if all(word in row["what"] for word in of))
    return 1 / (1e6 * speed)


def _nothing(number: int, _sent: bytes) -> int:
    return number


def _job(home: Path, recordings: int) -> dict[str, float]:
    engine._job(home, 100_000, recordings)
    os.environ["MEGALENS_CACHE_DIR"] = str(home.parent / "cache")
    return {
        name: timed(lambda: open_run(f"{home}/*").close()) / recordings for name in ("recording", "known")
    }


def _hub(folder: Path, producers: int, viewers: int, steps: int) -> float:
    """Return the processor time of a hub for a step."""
    options = argparse.Namespace(producers=producers, viewers=viewers, stalled=0, steps=steps, period=_PERIOD)
    seconds: float = hub_load.measure(options, folder / f"{producers}-{viewers}")["watch"]["seconds"]
    print(f"{producers} producers, {viewers} viewers: {1e3 * seconds / steps:.1f} ms a step", flush=True)
    return seconds / steps


def table(rows: Sequence[Mapping[str, Any]], kind: str) -> str:
    """Return the rows that are ``measured`` or ``computed`` as the page docs/scale.md has them."""
    lines = ["| what | figure |", "|---|---|"]
    for row in rows:
        of, _, what = row["what"].partition(": ")
        if of == kind:
            lines.append(f"| {what} | {row['value']:.3g} {row['unit']} |")
    return "\n".join(lines)
