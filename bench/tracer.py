"""What the tracer costs a training step, and where each microsecond of it goes: steps that are traced or not by chance, in one run, with a core free and with none."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from megalens.demo import GPT, GPTConfig, TrainConfig, Trainer, load_corpus
from megalens.demo.train import Untraced

from .common import Tossed, in_turns, ratio, timed, tossed, trimmed_mean
from .report import Measured, Row, benchmark, cost
from .tracer_ways import Costs, Ways

__all__ = ["tracer"]

TITLES = {
    "again": "nothing, measured again (A/A)",
    "armed": "armed: hub and producer run, nothing chosen",
    "recorded": "QKV, MLP1, MLP2 of all layers, Tile(96), recorded, nobody looks",
    "viewed": "the same, recorded, with one viewer",
    "read": "floor: the values of the same tensors added up by plain hooks, nothing kept or sent",
    "statistics": "parameters and gradients every step, recorded, nobody looks",
    "peer": "baseline: JSON text per tensor, the same sample",
}
_PEER_ROUNDS = 12
"""The baseline takes ten times as long and needs no small interval."""
_BLOCK = 8
_COUNTED = 5
"""Blocks of which it is counted where the time goes; of a training of which few steps are measured two."""
_FEW_STEPS = 150


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
    config : GPTConfig
        The model.
    batch : int
        Sequences a step.
    share : float
        Of the steps of the first load.
    """

    title: str
    threads: int
    most: dict[str, float]
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
        Load("12 layers, hidden 512, one thread", 1, _ALL, large, 4, share=0.15),
    ]


@benchmark(
    "What tracing costs a step",
    "16 steps",
    steps=(1500, 16, "steps of each way"),
    loads=(3, "how many trainings, the smallest first"),
)
def tracer(options: argparse.Namespace) -> Measured:
    """What the tracer costs a training step, and where each microsecond of it goes."""
    # Ended from outside, it still wakes the processes that it has stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    steps = options.steps
    rows: list[Row] = []
    for each in _loads(len(os.sched_getaffinity(0)))[: options.loads]:
        rows += _rows(each, max(16, round(steps * each.share)), options.folder)
    how = (
        f"One way after another; in each, {steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) with no core free, fewer of the others. Whether a step is traced or runs without any tracer is decided by chance for each, and what tracing adds to it and to the step after it is "
        "estimated in stretches of 8 steps (bench/common.py), with a 95 % bootstrap interval over stretches. With no core free, the processor time of producer and hub is added in full where nobody looks, since they then work up to a second later: that is too much rather than too little. "
        f"The baseline has {_PEER_ROUNDS} blocks of {_BLOCK} steps, each beside one without. Hubs and viewer are there for the whole run, and stopped (SIGSTOP) while another way is measured. Rows with a dot say where the time of a way goes, in microseconds of a processor a step, in blocks in which every step is traced: of the "
        f"training's other threads what is more than in a step that is not traced; of parts of the code, measured in steps of their own, what their calls take."
    )
    return Measured(rows, how, {"steps": steps})


def _rows(load: Load, steps: int, folder: Path) -> list[Row]:
    print(f"{load.title}: {steps} steps a way", file=sys.stderr)
    torch.set_num_threads(load.threads)
    torch.manual_seed(0)
    config = TrainConfig(steps=10**9, batch=load.batch)
    trainer = Trainer(GPT(load.config), load_corpus(300_000), config=config)
    trainer.step()
    costs = Costs()
    found: dict[str, Tossed] = {}
    block = min(_BLOCK, steps)
    with ExitStack() as stack:
        ways = Ways(trainer, stack, folder / load.title.replace(" ", "-"))
        for name in TITLES:
            if name == "peer":
                continue
            with ways.way(name) as standing:
                found[name] = tossed(
                    _at_some(trainer), standing.seconds, steps, first=min(64, max(2, steps // 4))
                )
            for each in ("without", name) * (_COUNTED if steps > _FEW_STEPS else 2):
                with ways.way(each) as standing:
                    # What a change of hooks costs once is no part of a step.
                    trainer.step()
                    before = costs.read(standing)
                    _time(trainer.step, block, standing.flush)
                    costs.add(each, before, costs.read(standing), block)
            print(f"{name}: {100 * found[name].cost:.2f} %", file=sys.stderr)
        for name in ("recorded", "viewed", "statistics"):
            with ways.way(name) as standing, costs.parts(name, 2 * block):
                for _ in range(2 * block):
                    trainer.step()
                standing.flush()
                time.sleep(1.5)
        notes = ways.notes()
        step = found["again"].step
        rows = [Row(f"**{load.title}**: a step", 1e3 * step, "ms", note="the others are relative to this")]
        for name, each in found.items():
            # Where nobody looks they work later, and take the time of steps that are not traced as well.
            aside = each.processor if load.threads > 1 and name not in ("again", "viewed", "read") else 0.0
            over = each.over(aside)
            parts = [
                f"elapsed {100 * each.cost:.2f} %, processor time of producer and hub {100 * aside:.2f} %"
            ] * int(aside > 0)
            rows.append(cost(TITLES[name], over, load.most.get(name), *parts, *notes.get(name, [])))
            rows += costs.rows(name)
            if name in ("recorded", "viewed", "statistics"):
                rows.append(costs.told(name, step, over))
        if load.threads > 1:

            def train(way: str) -> float:
                with ways.way(way) as standing:
                    trainer.step()
                    return _time(trainer.step, _BLOCK, standing.flush)

            blocks = {way: partial(train, way) for way in ("without", "peer")}
            took = in_turns(blocks, _PEER_ROUNDS)
            quotients = [one / other for one, other in zip(took["peer"], took["without"], strict=True)]
            rows.append(cost(TITLES["peer"], ratio(quotients, middle=trimmed_mean), None))
    return rows


def _at_some(trainer: Trainer) -> Callable[[bool], None]:
    """Give what takes a step, which is traced where it says so."""
    tracer, nothing = trainer.tracer, Untraced()

    def step(traced: bool) -> None:
        trainer.tracer = tracer if traced else nothing
        trainer.step()

    return step


def _time(step: Callable[[], None], count: int, flush: Callable[[], None]) -> float:
    took = timed(step, count - 1) * (count - 1)
    # As many steps are sent in a block as are trained in it: the one before it came along, its last one stays.
    return (took + timed(flush) + timed(step)) / count


if __name__ == "__main__":
    tracer()
