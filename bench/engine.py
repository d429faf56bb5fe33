"""An engine of two workers beside one, and what an engine costs a small question.

A recording of statistics is written once and stands several times in a folder, as the ranks of a job do: its rows are read each time. The ways take turns, so
that whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from megalens.protocol import segment_name
from megalens.runs import open_run

from .common import in_turns, percentile, ratio, timed
from .recordings import rows_of, write_header
from .report import Measured, Row, benchmark, divided, judged, typical

__all__ = ["engine"]

_TENSORS, _STEPS, _GROUP_ROWS = 1000, 400, 100_000
# A pattern, which no summary of a segment answers: rows are read.
_QUESTION = {"stat": "grad", "by": r"\.(mlp|attention)\."}
_MILLION = 1_000_000
# Cores that others may have while an answer is made that counts, how many are tried for one that does, and how many must.
_CALM, _MOST_ROUNDS, _LEAST = 0.1, 3, 3


@benchmark(
    "Questions on a Dask cluster",
    "fewer rows and rounds",
    millions=(100, 2, "millions of rows of the large run"),
    rounds=(5, 3, "how often each way answers"),
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
        order, answers = random.Random(0), {}
        every: dict[int, list[_Asked]] = {1: [], 2: []}
        while (
            min(len(_calm(each)) for each in every.values()) < rounds
            and len(every[1]) < _MOST_ROUNDS * rounds
        ):
            for workers in order.sample([1, 2], 2):
                before, others = _processor(clients[workers]), _machine()
                own, began = time.process_time(), time.perf_counter()
                answers[workers] = runs[workers].moments(**_QUESTION)
                took = time.perf_counter() - began
                after = _processor(clients[workers])
                busy_each = [after[who] - before[who] for who in after]
                rest = _machine() - others - sum(busy_each) - (time.process_time() - own)
                every[workers].append(_Asked(took, max(busy_each), rest / took))
                print(workers, every[workers][-1], flush=True)
        # What others took of the second core two workers lack, and one does not.
        used = {workers: _calm(each) for workers, each in every.items()}
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


def _calm(answers: Sequence[_Asked]) -> list[_Asked]:
    return [each for each in answers if each.others < _CALM]


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
    rng, found = random.Random(0), []
    for _ in range(4000):
        at = rng.choices(range(rounds), k=rounds)
        found.append(statistics.median(there_ms[i] for i in at) - statistics.median(here_ms[i] for i in at))
    low, high = percentile(found, 2.5), percentile(found, 97.5)
    extra = statistics.median(there_ms) - statistics.median(here_ms)
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

    found: dict[str, float] = client.run(seconds)
    return found


def _job(home: Path, rows: int, copies: int) -> None:
    """Write a recording and let it stand there several times, as links to the same files."""
    _recording(home / "rank0", rows)
    for rank in range(1, copies):
        folder = write_header(home / f"rank{rank}", 100_000)
        (folder / "moments").mkdir()
        for file in (home / "rank0" / "moments").iterdir():
            os.link(file, folder / "moments" / file.name)


def _recording(folder: Path, rows: int) -> None:
    (write_header(folder, 100_000) / "moments").mkdir()
    names = [
        f"decoder.layers.{at // 20}.{('mlp', 'attention')[at % 2]}.{at % 20}.weight" for at in range(_TENSORS)
    ]
    rng = np.random.default_rng(0)
    for number, first in enumerate(range(1, rows // _TENSORS + 1, _STEPS)):
        steps = min(_STEPS, rows // _TENSORS + 1 - first)
        size = steps * _TENSORS
        deviation = np.exp(rng.normal(-3, 1, size))
        batch = rows_of(
            "moments",
            size,
            step=np.repeat(np.arange(first, first + steps), _TENSORS),
            name=pa.array(names).take(pa.array(np.tile(np.arange(_TENSORS), steps))),
            **{"stat": "grad", "gradient_stage": "pre_clip", "loss_scale": 1.0, "count": 1e6},
            mean=rng.normal(0, 0.1, size),
            **{"m2": 1e6 * deviation**2, "m3": 1e5 * deviation**3, "m4": 3e6 * deviation**4},
            **{"min": -4 * deviation, "max": 4 * deviation},
        )
        path = folder / "moments" / segment_name(number, first, ".parquet")
        table = pa.Table.from_batches([batch])
        pq.write_table(table, path, row_group_size=_GROUP_ROWS, compression="zstd")
