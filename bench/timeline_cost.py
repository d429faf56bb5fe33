"""What timing costs a step: steps of the demo model alone, and of a job of 4 processes, that are timed or not by chance, in one run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens.demo import GPT, TrainConfig, Trainer, load_corpus
from megalens.protocol import STREAMS
from megalens.runs import open_run
from megalens.tracer import Tracer

from .common import Row, Tossed, asked, judged, report, tossed
from .statistics import seconds_aside

__all__ = ["main"]

_PROCESSES = 4
_MORE = 4
"""Times as many steps of the job: processes that wait for each other vary more."""
_MOST = {"phases": 0.5, "layers": 1.0}
_TITLES = {"steps": "sums of each step", "phases": "phases every step", "layers": "layers every step", "operations": "operations every step"}  # fmt: skip


def _cost(tracer: Tracer, step: Callable[[], object], steps: int) -> Tossed:
    """Return what timing adds to a step, by the settings in force."""
    instrument: Any = tracer.instrument("timeline")
    begins, timed = instrument.step_begins, [True]
    instrument.step_begins = lambda number, held: begins(number, held or not timed[0])

    def train(pays: bool) -> None:
        timed[0] = pays
        step()

    found = tossed(train, lambda: sum(seconds_aside(tracer)), steps)
    instrument.step_begins = begins
    return found


def _alone(steps: int) -> list[Row]:
    """Measure one process that trains on all cores, and on all but one."""
    rows, threads = [], torch.get_num_threads()
    for cores in dict.fromkeys((threads, max(1, threads - 1))):
        torch.set_num_threads(cores)
        model = GPT()
        with megalens.trace(model, name="bench-timeline", linger=0) as tracer:
            trainer = Trainer(model, load_corpus(300_000), tracer, TrainConfig(steps=10**9))
            assert tracer.connected(30)
            for way, title in _TITLES.items():
                tracer.configure(timeline=way)
                trainer.step()
                found = _cost(tracer, trainer.step, steps)
                # With a core to spare what others do is not taken from the training.
                aside = found.processor if cores == threads else 0.0
                where = "no core free" if cores == threads else "a core free"
                rows.append(found.row(f"{where}: {title}", _MOST.get(way), aside))
    torch.set_num_threads(threads)
    return rows


def _job(steps: int) -> tuple[list[Row], float]:
    """Train 4 replicas; return the lines of the table, and how many spans a rank has in a step at the finest."""
    with tempfile.TemporaryDirectory() as folder:
        answers = multiprocessing.get_context("spawn").SimpleQueue()
        multiprocessing.spawn(_process, (folder, steps, answers), nprocs=_PROCESSES, join=True)
        told = [answers.get() for _ in range(_PROCESSES)]
    spans = max(spans for _, spans in told)
    rows = []
    for way in _MOST:
        of_ranks = [found[way] for found, _ in told]
        # All wait for the slowest in each step, so that any rank's clock serves; more processes than cores train, so that each second of a processor is taken from them, on all cores alike.
        aside = sum(each.processor for each in of_ranks) / (os.cpu_count() or 1)
        rows.append(of_ranks[0].row(f"job of {_PROCESSES} processes: {_TITLES[way]}", _MOST[way], aside))
    return rows, spans


def _process(rank: int, folder: str, steps: int, answers: Any) -> None:
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "runtime")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = distributed.FileStore(f"{folder}/store", _PROCESSES)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=_PROCESSES)
    model = GPT()
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 200, (4, 128))
    found: dict[str, Tossed] = {}
    with megalens.trace(model, record=folder, linger=0.1) as tracer:

        def step() -> None:
            with tracer.step():
                replica(ids).logsumexp(-1).mean().backward()
                optimizer.step()
                optimizer.zero_grad()

        def change(way: str) -> None:
            if rank == 0:
                tracer.configure(timeline=way)
            # It takes a few steps to be agreed on.
            for _ in range(4):
                step()

        assert rank > 0 or tracer.connected(60)
        distributed.barrier()
        for way in _MOST:
            change(way)
            found[way] = _cost(tracer, step, steps)
        change("operations")
        for _ in range(4):
            step()
    distributed.destroy_process_group()
    spans = 0.0
    if rank == 0:
        rows = open_run(tracer.folder).table("spans").to_pandas()
        of_steps = rows.groupby("step").size()
        spans = float(of_steps.max()) / _PROCESSES
    answers.put((found, spans))


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/timeline_cost.json``; return the page of all results."""
    options = asked(__doc__, arguments, "16 steps", steps=(400, "steps of each way"))
    steps = 16 if options.quick else options.steps
    rows, spans = _job(_MORE * steps)
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["MEGALENS_RUNTIME_DIR"] = runtime
        rows = [*_alone(steps), *rows]
    size = spans * STREAMS["spans"].policy.row_bytes
    rows.append(
        judged("a rank and step at operations, on the wire", size / 1e3, "kB", "≤ 50", f"{spans:.0f} spans")
    )  # fmt: skip
    how = (
        f"{steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way, with no core free and with one. Then {_PROCESSES} processes with `DistributedDataParallel` over gloo on the same cores, one thread each, 4 sequences a step, {_MORE * steps} steps in every way. "
        "Hub and tracer are there, and a hub records it all; whether a step is timed is decided by chance for each, on all ranks alike, and what timing adds to it and to the step after it is estimated in stretches of 8 steps (bench/common.py), with a 95 % bootstrap interval over stretches. "
        "Producers and hub work up to a second later, so that their processor time is added: in full with no core free, and in the job as far as it takes all cores alike. What hooks cost in a step that is not timed, where they look at a flag, is not in it."
    )
    return report(
        "timeline_cost",
        "What timing costs a step",
        rows,
        how=how,
        quick=options.quick,
        facts={"steps": steps},
    )


if __name__ == "__main__":
    main()
