"""What logging statistics costs a training step: blocks of steps of the demo model, with and without, in random order, in one run."""

from __future__ import annotations

import argparse
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

import megalens
from megalens.demo import GPT, TrainConfig, Trainer, load_corpus
from megalens.tracer import Tracer
from megalens.tracer.moments import kernel_name

from .common import Tossed, processor_seconds, ratio, timed, trimmed_mean
from .report import Measured, Row, benchmark, cost

__all__ = [
    "Way",
    "cores_left",
    "measured",
    "rows_of",
    "seconds_aside",
    "statistics",
    "tossed_row",
    "training",
]


@dataclass(frozen=True)
class Way:
    """What is measured in a block.

    Attributes
    ----------
    title : str
        In words.
    logged : dict
        Statistics of each measured step.
    spread : int
        Steps over which that is spread.
    most : float or None
        Per cent of a step that it may cost.
    every : int
        Rounds from one block of it to the next.
    begin : callable, optional
        Gives what measures, for a ``with``; of ``logged`` when absent.
    """

    title: str
    logged: dict[str, Any]
    spread: int = 1
    most: float | None = None
    every: int = 1
    begin: Callable[[Trainer, Tracer], AbstractContextManager[Any]] | None = None


WAYS = {
    "off": Way("", {"param": 0}),
    "param and grad": Way("parameters and gradients every step", {"param": 1, "grad": 1}, most=0.5),
    "activation": Way("activations every 10 steps", {"activation": 1}, spread=10, most=1.0, every=2),
    "all": Way(
        "all six in one step",
        dict.fromkeys(("param", "grad", "activation", "dgrad", "residual", "residual_dgrad"), 1),
        every=5,
    ),
}

_SPARED = {name: WAYS[name] for name in ("off", "param and grad", "activation")}
"""What is measured once more, with a core to spare."""


@dataclass(frozen=True)
class _Block:
    """Seconds a step: by the clock, of the training thread on statistics, and of two processors' time."""

    step: float
    training: float
    producer: float
    hub: float


_PLACES = {
    "training": "time of the training thread",
    "producer": "processor time of the producer thread",
    "hub": "processor time of the hub, recording included",
}


@benchmark(
    "What logging statistics costs a step",
    "15 rounds",
    rounds=(200, 15, "blocks without statistics"),
    steps=(4, "steps a block"),
)
def statistics(options: argparse.Namespace) -> Measured:
    """What logging statistics costs a training step: blocks of steps of the demo model, with and without, in random order, in one run."""
    rounds, threads = options.rounds, torch.get_num_threads()
    rows: list[Row] = []
    for left in cores_left():
        ways = _SPARED if left else WAYS
        rows += rows_of(measured(options, ways), ways, ", one core left" if left else "")
    how = (
        f"{rounds} rounds; in each, {options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way (activations in every second round, all six in every fifth), "
        "in random order, after one step that is not measured. Every measured step is logged; what is logged seldom is divided by its interval. A hub records it all. Time of a block over that of "
        "the block without statistics in the same round; mean without the smallest and largest tenth; 95 % bootstrap interval over rounds. First the training works on all cores, so that all that producer and hub do is taken from it; "
        "then on all but one, as where a training has a core to spare for them. Indented: where the time goes, each counted by itself (time within the calls that measure; processor time of the thread and of the process, over that in the block without)."
    )
    return Measured(rows, how, {"rounds": rounds, "torch_threads": threads, "kernel": kernel_name()})


def measured(options: argparse.Namespace, ways: Mapping[str, Way]) -> list[dict[str, _Block]]:
    """Return what a step took in each way, round by round."""
    torch.manual_seed(0)
    record = options.folder / f"run-{torch.get_num_threads()}"
    rng, found = random.Random(0), list[dict[str, _Block]]()
    with training("bench-statistics", record=record) as (trainer, tracer):
        for _ in range(10):
            trainer.step()
        for number in range(options.rounds):
            due = [name for name in ways if number % ways[name].every == 0]
            order = rng.sample(due, len(due))
            found.append({name: _block(trainer, tracer, ways[name], options.steps) for name in order})
            if number % 10 == 9:
                print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    return found


def rows_of(found: Sequence[dict[str, _Block]], ways: Mapping[str, Way], where: str = "") -> list[Row]:
    """Return the lines of the table: each way over the one that is called off."""
    rows = [
        Row(
            f"step, traced by nobody and nothing logged{where}",
            trimmed_mean([here["off"].step for here in found]) * 1e3,
            "ms",
            note="hub and producer are there; the others are relative to this",
        )
    ]
    for name, way in ways.items():
        # Each block over the one beside it: a machine that is slow for a while is slow for both.
        pairs = [(here[name], here["off"]) for here in found if name in here]
        if name != "off" and pairs:
            rows.append(
                _row(way, way.title + where, [block.step / off.step for block, off in pairs], way.most)
            )
            rows += [
                _part(way, place, pairs)
                for place in _PLACES
                if any(getattr(block, place) for block, _ in pairs)
            ]
    return rows


def _row(way: Way, title: str, quotients: list[float], most: float | None = None) -> Row:
    found = ratio(quotients, middle=trimmed_mean)
    whole = way.spread > 1 and most is not None
    notes = [f"{100 * (found.value - 1):.3g} % of a step that is logged"] * whole
    return cost(title, found, most, *notes, spread=way.spread)


def _part(way: Way, place: str, pairs: Sequence[tuple[_Block, _Block]]) -> Row:
    more = [(getattr(block, place) - getattr(off, place)) / off.step for block, off in pairs]
    return _row(way, f"· {_PLACES[place]}", [1 + each for each in more])


def _block(trainer: Trainer, tracer: Tracer, way: Way, steps: int) -> _Block:
    begin = way.begin or (
        lambda trainer, tracer: megalens.log_statistics(
            trainer.model, trainer.optimizer, tracer=tracer, **way.logged
        )
    )
    with begin(trainer, tracer) as logger:
        # What hooks cost once, and caches that another way left, are no part of a step.
        trainer.step()
        before = (logger.spent_ns * 1e-9, *seconds_aside(tracer))
        took = timed(trainer.step, steps)
        after = (logger.spent_ns * 1e-9, *seconds_aside(tracer))
        return _Block(took, *((end - start) / steps for start, end in zip(before, after, strict=True)))


@contextmanager
def training(name: str, **options: Any) -> Iterator[tuple[Trainer, Tracer]]:
    """Give a trainer of the demo model and its tracer, which has its hub."""
    model = GPT()
    with megalens.trace(model, name=name, linger=0.1, **options) as tracer:
        if not tracer.connected(30):
            raise TimeoutError("The tracer did not reach its hub within 30 s.")
        yield Trainer(model, load_corpus(300_000), tracer, TrainConfig(steps=10**9)), tracer


def cores_left() -> Iterator[bool]:
    """Train on all cores, then on all but one; give whether one is left."""
    threads = torch.get_num_threads()
    for cores in dict.fromkeys((threads, max(1, threads - 1))):
        torch.set_num_threads(cores)
        yield cores < threads
    torch.set_num_threads(threads)


def tossed_row(title: str, found: Tossed, most: float | None, aside: float) -> Row:
    """Return the line of what was found by coin, with a part of a step that is added because others work later."""
    note = f"elapsed {100 * found.cost:.2f} %, processor time aside {100 * aside:.2f} %; a step of {1e3 * found.step:.0f} ms"
    return cost(title, found.over(aside), most, note)


def seconds_aside(tracer: Tracer) -> tuple[float, float]:
    """Return what the producer thread and the hub have had of a processor; zeros where the system does not say."""
    (producer,) = (each.native_id for each in threading.enumerate() if each.name == "megalens-producer")
    return processor_seconds(f"/proc/self/task/{producer}"), processor_seconds(
        f"/proc/{tracer.hub_pid}/task/*"
    )
