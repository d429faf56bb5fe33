"""Recordings of many rows and jobs of many ranks: questions on a Dask cluster of two workers beside one, and what a billion rows and ten thousand ranks cost.

The latter is computed from the smallest parts, which are measured: a row that is read on a worker, an empty task, a frame into a hub and out of it, a recording of a job. A simulation queues them as
the product does: tasks at free workers, frames at a hub that does one thing at a time. It is held against one case that is measured too.
"""

from __future__ import annotations

import argparse
import heapq
import json
import logging
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster
from numpy.typing import NDArray

from megalens.runs import open_run
from megalens.runs.dask_engine import DaskEngine
from megalens.runs.moments.grouping import planned

from .common import (
    RESULTS,
    Measured,
    Row,
    benchmark,
    divided,
    in_turns,
    judged,
    ratio,
    timed,
    typical,
)
from .hub_load import measure
from .recordings import write_header, write_recording

__all__ = ["Costs", "computed", "engine", "question_seconds", "scale", "step_of", "table", "through"]

_TENSORS = 1000
# A pattern, which no summary of a segment answers: rows are read.
_QUESTION = {"stat": "grad", "by": r"\.(mlp|self_attention)\."}
# Cores that others may have while an answer is made that counts, and how many must.
_CALM, _LEAST = 0.1, 3


@benchmark(
    "Questions on a Dask cluster",
    "fewer rows and rounds",
    millions=(100, 2, "millions of rows of the large run"),
    rounds=(12, 3, "how often each way answers"),
    copies=(10, 2, "recordings of the job"),
    small=(25, 3, "how often the small question is answered"),
)
def engine(options: argparse.Namespace) -> Measured:
    """An engine of two workers beside one, and what an engine costs a small question."""
    millions, large, small = options.millions, options.folder / "large", options.folder / "small"
    _job(large, millions * _MILLION // options.copies, options.copies)
    _job(small, _MILLION, 1)
    rows = [*_scaling(f"{large}/*", millions, options.rounds), *_extra(small / "rank0", options.small)]
    how = (
        "Clusters of one and of two worker processes of one thread each, on the same machine as scheduler and whoever asks, answer the same question (statistics "
        "by a pattern over names, for which all rows are read), in turns of random order; medians, and 95 % intervals by bootstrap. The machine has two cores, of which "
        "other work must have had less than a tenth of one during an answer: others are left out, where three or more of each are left."
    )
    return Measured(rows, how)


def _scaling(path: str, millions: int, rounds: int) -> list[Row]:
    with _cluster(1) as one, _cluster(2) as two:
        runs = {1: open_run(path, engine=one), 2: open_run(path, engine=two)}
        clients = {1: one, 2: two}
        for run in runs.values():
            # Lists what there is, and has workers import what they need.
            run.moment_source.index()
        answers: dict[int, pd.DataFrame] = {}

        def ask(workers: int) -> _Asked:
            before, others = _processor(clients[workers]), _machine()
            own, began = time.process_time(), time.perf_counter()
            answers[workers] = runs[workers].moments(**_QUESTION)
            took = time.perf_counter() - began
            busy_each = [after - before[who] for who, after in _processor(clients[workers]).items()]
            rest = _machine() - others - sum(busy_each) - (time.process_time() - own)
            return _Asked(took, max(busy_each), rest / took)

        every: dict[int, list[_Asked]] = in_turns({each: partial(ask, each) for each in runs}, rounds)
        # What others took of the second core two workers lack, and one does not.
        used = {at: [each for each in of if each.others < _CALM] for at, of in every.items()}
        if min(map(len, used.values())) < _LEAST:
            used = every
        seconds = {workers: [each.seconds for each in of] for workers, of in used.items()}
        busy = {workers: [each.busy for each in of] for workers, of in used.items()}
        pd.testing.assert_frame_equal(answers[1], answers[2], rtol=1e-12)
        for run in runs.values():
            run.close()
    faster = ratio(seconds[1], seconds[2], paired=False, middle=statistics.median)
    alone = ratio(busy[1], busy[2], paired=False, middle=statistics.median)
    rows = []
    for workers, each in seconds.items():
        what = f"{millions} million rows, {'one worker' if workers == 1 else 'two workers'}"
        note = f"the busier worker: {statistics.median(busy[workers]):.1f} s of processor"
        rows.append(typical(what, each, "s", note=note, seconds=each, processor=busy[workers]))
    note = f"of {len(every[1])} answers by each, {len(used[1])} and {len(used[2])} count"
    return [
        *rows,
        divided("one worker ÷ two workers, wall", faster, "≥ 1.7", note, every=every),
        divided("one worker ÷ the busier of two, processor", alone),
    ]


class _Asked(NamedTuple):
    """How long a question took, the processor time of its busier worker, and the cores that others had meanwhile."""

    seconds: float
    busy: float
    others: float


def _machine() -> float:
    """Return the processor seconds of everybody so far."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, fields[:8])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def _extra(folder: Path, rounds: int) -> list[Row]:
    with _cluster(2) as client, open_run(folder) as here, open_run(folder, engine=client) as there:
        pd.testing.assert_frame_equal(there.moments(**_QUESTION), here.moments(**_QUESTION), rtol=1e-12)
        ways = {"here": here.moments, "there": there.moments}
        taken = in_turns(
            {name: lambda ask=ask: 1000 * timed(lambda: ask(**_QUESTION)) for name, ask in ways.items()},
            rounds,
        )
    here_ms, there_ms = taken["here"], taken["there"]
    middle, times = statistics.median(here_ms), ratio(there_ms, here_ms, middle=statistics.median)
    extra, low, high = (middle * (each - 1) for each in (times.value, times.low, times.high))
    return [
        typical("one million rows, no engine", here_ms, "ms", ms=here_ms),
        typical(
            "one million rows, two workers there: few, so they are read here", there_ms, "ms", ms=there_ms
        ),
        judged("one million rows: more with the engine", extra, "ms", "≤ 50", low=low, high=high),
    ]


@contextmanager
def _cluster(workers: int) -> Iterator[Client]:
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            worker_dashboard_address=None,
            silence_logs=logging.ERROR,
        ) as local,
        Client(local, set_as_default=False) as client,
    ):
        yield client


def _processor(client: Client) -> dict[str, float]:
    def seconds() -> float:
        return time.process_time()

    return client.run(seconds)


def _job(home: Path, rows: int, copies: int) -> None:
    """Write a recording and let it stand there several times, as links to the same files."""
    write_recording(home / "rank0", _TENSORS, rows // _TENSORS)
    for rank in range(1, copies):
        folder = write_header(home / f"rank{rank}", 100_000)
        (folder / "moments").mkdir()
        for file in (home / "rank0" / "moments").iterdir():
            os.link(file, folder / "moments" / file.name)


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
    parts |= _recorded_job(options.folder / "job", options.recordings)
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
    _job(home, millions * _MILLION // 10, 10)
    size = sum(file.stat().st_size for file in (home / "rank0" / "moments").iterdir())
    with _cluster(1) as client, open_run(f"{home}/*", engine=client) as run:
        run.moments(**_QUESTION)
        busy = []
        for _ in range(3):
            before = sum(_processor(client).values())
            run.moments(**_QUESTION)
            busy.append(sum(_processor(client).values()) - before)
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


def _recorded_job(home: Path, recordings: int) -> dict[str, float]:
    _job(home, 100_000, recordings)
    os.environ["MEGALENS_CACHE_DIR"] = str(home.parent / "cache")
    return {
        name: timed(lambda: open_run(f"{home}/*").close()) / recordings for name in ("recording", "known")
    }


def _hub(folder: Path, producers: int, viewers: int, steps: int) -> float:
    """Return the processor time of a hub for a step."""
    options = argparse.Namespace(producers=producers, viewers=viewers, stalled=0, steps=steps, period=_PERIOD)
    seconds: float = measure(options, folder / f"{producers}-{viewers}")["seconds"]
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
