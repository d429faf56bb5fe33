"""An engine of two workers beside one, and what an engine costs a small question: ``python -m bench.engine [--quick]``.

A recording of statistics is written once and stands several times in a folder, as the ranks of a job do: its rows are read each time. The ways take turns, so
that whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import json
import logging
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from bench.common import Row, asked, judged, percentile, ratio, report
from megalens.protocol import segment_name, stream_schema
from megalens.runs import open_run

_TENSORS, _STEPS, _GROUP_ROWS = 1000, 400, 100_000
# A pattern, which no summary of a segment answers: rows are read.
_QUESTION = {"stat": "grad", "by": r"\.(mlp|attention)\."}
_MILLION = 1_000_000
# Cores that others may have while an answer is made that counts, how many are tried for one that does, and how many must.
_CALM, _MOST_ROUNDS, _LEAST = 0.1, 3, 3


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure, check that answers agree, write the results and print the table."""
    options = asked(
        __doc__,
        arguments,
        "fewer rows and rounds",
        millions=(100, "millions of rows of the large run"),
        rounds=(5, "how often each way answers"),
    )
    copies, rounds = (2, 3) if options.quick else (10, options.rounds)
    millions = 2 if options.quick else options.millions
    with tempfile.TemporaryDirectory() as home:
        large, small = Path(home) / "large", Path(home) / "small"
        _job(large, millions * _MILLION // copies, copies)
        _job(small, _MILLION, 1)
        lines = [
            *_scaling(f"{large}/*", millions, rounds),
            *_extra(small / "rank0", 3 if options.quick else 25),
        ]
    return report(
        "engine",
        f"Questions on a Dask cluster: {millions} million rows",
        lines,
        how=(
            "Clusters of one and of two worker processes of one thread each, on the same machine as scheduler and whoever asks, answer the same question (statistics "
            "by a pattern over names, for which all rows are read), in turns of random order; medians, and 95 % intervals by bootstrap. The machine has two cores, of which "
            "other work must have had less than a tenth of one during an answer: others are left out, where three or more of each are left."
        ),
        quick=options.quick,
    )


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
    return [
        *(
            Row(
                f"{millions} million rows, {'one worker' if workers == 1 else 'two workers'}",
                statistics.median(each),
                "s",
                min(each),
                max(each),
                note=f"the busier worker: {statistics.median(busy[workers]):.1f} s of processor",
                extra={"seconds": each, "processor": busy[workers]},
            )
            for workers, each in seconds.items()
        ),
        judged(
            "one worker ÷ two workers, wall",
            faster.value,
            "×",
            "≥ 1.7",
            low=faster.low,
            high=faster.high,
            note=f"of {len(every[1])} answers by each, {len(used[1])} and {len(used[2])} count",
            every=every,
        ),
        Row("one worker ÷ the busier of two, processor", alone.value, "×", alone.low, alone.high),
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
        ways: dict[str, tuple[Callable[..., Any], list[float]]] = {
            "here": (here.moments, []),
            "there": (there.moments, []),
        }
        order = random.Random(0)
        for _ in range(rounds):
            for way in order.sample(list(ways), 2):
                ask, taken = ways[way]
                began = time.perf_counter()
                ask(**_QUESTION)
                taken.append((time.perf_counter() - began) * 1000)
    here_ms, there_ms = ways["here"][1], ways["there"][1]
    rng, found = random.Random(0), []
    for _ in range(4000):
        at = rng.choices(range(rounds), k=rounds)
        found.append(statistics.median(there_ms[i] for i in at) - statistics.median(here_ms[i] for i in at))
    low, high = percentile(found, 2.5), percentile(found, 97.5)
    extra = statistics.median(there_ms) - statistics.median(here_ms)
    return [
        Row("one million rows, no engine", statistics.median(here_ms), "ms", extra={"ms": here_ms}),
        Row(
            "one million rows, two workers there: few, so they are read here",
            statistics.median(there_ms),
            "ms",
            extra={"ms": there_ms},
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
        folder = home / f"rank{rank}"
        (folder / "moments").mkdir(parents=True)
        for file in (home / "rank0" / "moments").iterdir():
            os.link(file, folder / "moments" / file.name)
        _header(folder)


def _recording(folder: Path, rows: int) -> None:
    (folder / "moments").mkdir(parents=True)
    names = [
        f"decoder.layers.{at // 20}.{('mlp', 'attention')[at % 2]}.{at % 20}.weight" for at in range(_TENSORS)
    ]
    rng, schema = np.random.default_rng(0), stream_schema("moments")
    for number, first in enumerate(range(1, rows // _TENSORS + 1, _STEPS)):
        steps = min(_STEPS, rows // _TENSORS + 1 - first)
        size = steps * _TENSORS
        deviation = np.exp(rng.normal(-3, 1, size))
        columns: dict[str, Any] = {
            "step": np.repeat(np.arange(first, first + steps), _TENSORS),
            "name": pa.array(names).take(pa.array(np.tile(np.arange(_TENSORS), steps))),
            "stat": "grad",
            "gradient_stage": "pre_clip",
            "count": 1e6,
            "mean": rng.normal(0, 0.1, size),
            **{"m2": 1e6 * deviation**2, "m3": 1e5 * deviation**3, "m4": 3e6 * deviation**4},
            **{"min": -4 * deviation, "max": 4 * deviation, "loss_scale": 1.0},
        }
        arrays = []
        for field in schema:
            column = columns.get(field.name, "" if pa.types.is_string(field.type) else 0)
            same = isinstance(column, str | int | float)
            arrays.append(
                pa.repeat(pa.scalar(column, field.type), size) if same else pa.array(column).cast(field.type)
            )
        path = folder / "moments" / segment_name(number, first, ".parquet")
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=schema), path, row_group_size=_GROUP_ROWS, compression="zstd"
        )
    _header(folder)


def _header(folder: Path) -> None:
    run = {"id": folder.name, "name": "bench", "started": 1_795_000_000.0}
    header = {"format": 2, "run": run, "ended": 1_795_100_000.0, "state": "finished", "flags": []}
    (folder / "run.json").write_text(json.dumps(header))


if __name__ == "__main__":
    main()
