"""What the tracer costs a training step, and where each microsecond of it goes: blocks of steps in random order, in one run, with a core free and with none."""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch

from megalens.demo import GPT, GPTConfig, TrainConfig, Trainer, load_corpus

from .common import UNDECIDED, Row, ratio, trimmed_mean, verdict, write_results
from .tracer_costs import Costs
from .tracer_ways import Ways

__all__ = ["main"]

TITLES = {
    "again": "nothing, measured again (A/A)",
    "armed": "armed: hub and producer run, nothing chosen",
    "recorded": "QKV, MLP1, MLP2 of all layers, Tile(96), recorded, nobody looks",
    "viewed": "the same, recorded, with one viewer",
    "statistics": "parameters and gradients every step, recorded, nobody looks",
    "peer": "baseline: JSON text per tensor, the same sample",
}
PEER_ROUNDS = 12
"""The baseline takes ten times as long and needs no small interval."""


@dataclass(frozen=True)
class Load:
    """A training that is measured.

    Attributes
    ----------
    title : str
        In words.
    threads : int
        Torch's threads.
    most : dict
        Per cent of a step that each way may cost.
    steps : int
        Steps of a block.
    config : GPTConfig
        The model.
    batch : int
        Sequences a step.
    share : float
        Of the rounds of the first load.
    """

    title: str
    threads: int
    most: dict[str, float]
    steps: int = 8
    config: GPTConfig = field(default_factory=GPTConfig)
    batch: int = 16
    share: float = 1.0


_ALL = dict.fromkeys(("armed", "recorded", "viewed", "statistics"), 0.5)


def _loads(cores: int) -> list[Load]:
    none = {"armed": 0.2, "recorded": 2.0, "viewed": 4.0, "statistics": 1.0}
    free = {"armed": 0.2, "recorded": 1.0, "viewed": 1.5, "statistics": 0.5}
    large = GPTConfig(layers=12, hidden=512, heads=8)
    return [
        Load("no core free", cores, none),
        Load("a core free", max(1, cores - 1), free, share=0.7),
        Load("12 layers, hidden 512, one thread", 1, _ALL, 2, large, 4, share=0.3),
    ]


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/tracer.{json,md}``; return the Markdown file."""
    parser = argparse.ArgumentParser(prog="python -m bench.tracer", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="blocks of each kind (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="3 rounds: shows that it works")
    options = parser.parse_args(arguments)
    rounds = 3 if options.quick else options.rounds
    # Ended from outside, it still wakes the processes that it has stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    load = os.getloadavg()[0]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["MEGALENS_RUNTIME_DIR"] = runtime
        for each in _loads(len(os.sched_getaffinity(0))):
            rows += _rows(each, max(3, round(rounds * each.share)), Path(runtime))
    how = (
        f"{rounds} rounds with no core free, fewer of the others; in each, 8 training steps of the demo model (4 layers, hidden 128, batch 16 × 128; 2 steps of the larger one) in every way, in random order, after one step that is not measured (the baseline in "
        f"{PEER_ROUNDS} of the rounds). Hubs and viewer are there for the whole run, and stopped (SIGSTOP) while another way is measured. Time of a block over the mean of the two blocks of the same round that are not traced; mean without the smallest and largest tenth; "
        "95 % bootstrap interval over rounds. Rows with a dot say where the time of a way goes, in microseconds of a processor a step: of the training's other threads what is more than in a step that is not traced; "
        f"of parts of the code, measured in steps of their own, what their calls take. Before it began, {load:.1f} other processes on average wanted a processor."
    )
    return write_results(
        "tracer", "What tracing costs a step", rows, how=how, quick=options.quick, facts={"rounds": rounds}
    )


def _rows(load: Load, rounds: int, folder: Path) -> list[Row]:
    print(f"{load.title}: {rounds} rounds", file=sys.stderr)
    torch.set_num_threads(load.threads)
    torch.manual_seed(0)
    config = TrainConfig(steps=10**9, batch=load.batch)
    trainer = Trainer(GPT(load.config), load_corpus(300_000), config=config)
    for _ in range(4):
        trainer.step()
    names = ["without", *(name for name in TITLES if name != "peer" or load.threads > 1)]
    rng = random.Random(0)
    blocks: dict[str, dict[int, float]] = {name: {} for name in names}
    costs = Costs()
    with ExitStack() as stack:
        ways = Ways(trainer, stack, folder / load.title.replace(" ", "-"))
        for number in range(rounds):
            here = [name for name in names if name != "peer" or number < PEER_ROUNDS]
            for name in rng.sample(here, len(here)):
                with ways.way(name) as standing:
                    # What a change of hooks costs once, and caches that another way left, are no part of a step.
                    trainer.step()
                    before = costs.read(standing)
                    blocks[name][number] = _time(trainer.step, load.steps, standing.flush)
                    costs.add(name, before, costs.read(standing), load.steps)
            if number % 10 == 9:
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for name in ("recorded", "viewed", "statistics"):
            with ways.way(name) as standing, costs.parts(name, 2 * load.steps):
                for _ in range(2 * load.steps):
                    trainer.step()
                standing.flush()
                time.sleep(1.5)
        notes = ways.notes()
    base = {number: (blocks["without"][number] + blocks["again"][number]) / 2 for number in range(rounds)}
    rows = [
        Row(
            f"**{load.title}**: a step that is not traced",
            1e3 * statistics.fmean(base.values()),
            "ms",
            note="the others are relative to this",
        )
    ]
    for name in names[1:]:
        # Each block over those beside it: a machine that is slow for a while is slow for all.
        against = blocks["without"] if name == "again" else base
        quotients = [took / against[number] for number, took in blocks[name].items()]
        rows.append(_row(TITLES[name], quotients, load.most.get(name), notes.get(name, "")))
        rows += costs.rows(name)
    return rows


def _row(title: str, quotients: list[float], most: float | None, note: str) -> Row:
    found = ratio(quotients, [1.0] * len(quotients), middle=trimmed_mean)
    cost, low, high = (100 * (value - 1) for value in (found.value, found.low, found.high))
    met = verdict(low, high, most)
    notes = [UNDECIDED] if met is None and most is not None else []
    target = "" if most is None else f"≤ {most} %"
    return Row(
        title, cost, "% of a step", low, high, target, met, " · ".join([*notes, note] if note else notes)
    )


def _time(step: Callable[[], None], count: int, flush: Callable[[], None]) -> float:
    began = time.perf_counter()
    for number in range(count):
        if number == count - 1:
            # As many steps are sent in a block as are trained in it: the one before it came along, its last one stays.
            flush()
        step()
    return (time.perf_counter() - began) / count


if __name__ == "__main__":
    print(main().read_text(encoding="utf-8"))
