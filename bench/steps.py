"""What a step pays for instruments that watch it, found by a coin: statistics, the training monitor beside TrainerMon's way of measuring, and the timeline."""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pandas
import torch
from torch import Tensor, distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens.demo import GPT, GPTConfig, TrainConfig, Trainer, load_corpus
from megalens.instruments.monitor.rule import Alarm
from megalens.protocol import STREAMS, StepReadings
from megalens.runs import open_run
from megalens.runs.connecting import connect
from megalens.tracer import Tracer
from megalens.tracer.moments import kernel_name
from megalens.tracer.moments.intervals import Intervals

from .common import Measured, Row, Tossed, benchmark, cost, judged, processor_seconds, timed, tossed
from .live import joined, traced

__all__ = ["PROCESSES", "monitor_cost", "replica", "statistics", "timeline_cost"]

PROCESSES = 4
"""Of a job."""


class Paid(NamedTuple):
    """What a step may pay for."""

    pays: Callable[[bool], None]
    """Says whether the next step pays."""
    spent: Callable[[], float] = lambda: 0.0
    """The seconds within the calls that measure, in the training thread, so far."""


@dataclass(frozen=True)
class Way:
    """What a step pays for, in one line of a table, and what of a step it may take, in per cent."""

    title: str
    begin: Callable[[Trainer, Tracer], AbstractContextManager[Paid]]
    most: float | None = None
    spread: int = 1
    """Steps over which a step that pays is spread."""
    share: float = 1.0
    """Of the steps of other ways."""
    spared: bool = True
    """Whether it is measured with a core to spare as well."""


_PLACES = (
    "time of the training thread",
    "processor time of the producer thread",
    "processor time of the hub, recording included",
)
_COIN = (
    "Hub and tracer are there, and the hub records it all; whether a step pays is decided by chance for each, and what paying adds to it and to the step after it is estimated in stretches of 8 steps (bench/common.py), with a 95 % bootstrap interval over stretches. "
    "First the training works on all cores, and the processor time of producer and hub, whose work comes later, is added in full; then on all but one, as where a training has a core to spare for them. Indented: where the time goes, each counted by itself."
)


def by_coin(folder: Path, ways: Sequence[Way], steps: int, titled: Callable[[str, bool], str]) -> list[Row]:
    """Measure each way in a training of its own, with all cores training and with one left; a line of the table has a title and whether one is left."""
    rows: list[Row] = []
    threads = torch.get_num_threads()
    for cores in dict.fromkeys((threads, max(1, threads - 1))):
        left = cores < threads
        torch.set_num_threads(cores)
        for way in ways:
            if left and not way.spared:
                continue
            found = _found(folder / f"{len(rows)}", way, max(9, round(way.share * steps)))
            title = titled(way.title, left)
            if way is ways[0]:
                note = "hub and producer are there; the others are relative to this"
                rows.append(
                    Row(
                        titled("step, traced by nobody and nothing logged", left),
                        1e3 * found.step,
                        "ms",
                        note=note,
                    )
                )
            rows.append(coin_row(title, found, way.most, 0.0 if left else sum(found.aside[1:]), way.spread))
            rows += [
                Row(f"· {place}", 100 * part / way.spread, "% of a step")
                for place, part in zip(_PLACES, found.aside, strict=True)
                if part
            ]
            print(f"{title}: {100 * found.cost:.2f} %", flush=True)
    torch.set_num_threads(threads)
    return rows


def coin_row(title: str, found: Tossed, most: float | None, aside: float, spread: int = 1) -> Row:
    """Return the line of what was found by coin, with a part of a step that is added because others work later."""
    note = f"elapsed {100 * found.cost:.2f} %, processor time aside {100 * aside:.2f} %; a step of {1e3 * found.step:.0f} ms"
    return cost(title, found.over(aside), most, note, spread=spread)


def _found(record: Path, way: Way, steps: int) -> Tossed:
    with _training(record=record) as (trainer, tracer), way.begin(trainer, tracer) as paid:

        def step(pays: bool) -> None:
            paid.pays(pays)
            trainer.step()

        return tossed(step, lambda: (paid.spent(), *_seconds_aside(tracer)), steps)


@contextmanager
def _training(**options: Any) -> Iterator[tuple[Trainer, Tracer]]:
    """Give a trainer of the demo model and its tracer, which has its hub."""
    torch.manual_seed(0)
    model = GPT()
    with traced(model, name="bench-steps", linger=0.1, **options) as tracer:
        yield Trainer(model, load_corpus(300_000), tracer, TrainConfig(steps=10**9)), tracer


def _seconds_aside(tracer: Tracer) -> tuple[float, float]:
    """Return what the producer thread and the hub have had of a processor; zeros where the system does not say."""
    (producer,) = (each.native_id for each in threading.enumerate() if each.name == "megalens-producer")
    tasks = f"/proc/self/task/{producer}", f"/proc/{tracer.hub_pid}/task/*"
    return processor_seconds(tasks[0]), processor_seconds(tasks[1])


def _measuring(logger: Any) -> Paid:
    """Have statistics measured in steps that pay alone."""
    on = [True]

    class AtSome(Intervals):
        """Intervals that hold in these."""

        def due(self, step: int) -> frozenset[str]:
            return super().due(step) if on[0] else frozenset()

    logger.intervals = AtSome(**asdict(logger.intervals))
    return Paid(lambda pays: on.__setitem__(0, pays), lambda: logger.spent_ns * 1e-9)


def _logged(*stats: str) -> Callable[[Trainer, Tracer], AbstractContextManager[Paid]]:
    @contextmanager
    def begin(trainer: Trainer, tracer: Tracer) -> Iterator[Paid]:
        every = dict.fromkeys(stats, 1)
        with megalens.log_statistics(trainer.model, trainer.optimizer, tracer=tracer, **every) as logger:
            yield _measuring(logger)

    return begin


_SIX = ("param", "grad", "activation", "dgrad", "residual", "residual_dgrad")
_STATISTICS = (
    Way("parameters and gradients every step", _logged("param", "grad"), 0.5),
    Way("activations every 10 steps", _logged("activation"), 1.0, spread=10, share=0.5),
    Way("all six in one step", _logged(*_SIX), share=0.2, spared=False),
)


@benchmark("What logging statistics costs a step", "9 steps", steps=(1500, 9, "steps of each way"))
def statistics(options: argparse.Namespace) -> Measured:
    """What logging statistics costs a training step: steps of the demo model that are logged or not by chance."""
    rows = by_coin(
        options.folder, _STATISTICS, options.steps, lambda title, left: title + ", one core left" * left
    )
    how = f"{options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128), half as many of activations and a fifth of all six. Every step that pays is logged; what is logged seldom is divided by its interval. {_COIN}"
    return Measured(rows, how, {"steps": options.steps, "kernel": kernel_name()})


_boxes: list[dict[str, Any]] = []


def _monitored(*stats: str) -> Callable[[Trainer, Tracer], AbstractContextManager[Paid]]:
    @contextmanager
    def begin(trainer: Trainer, tracer: Tracer) -> Iterator[Paid]:
        every = dict.fromkeys(("param", "grad", "activation", "optimizer_state"), 0) | dict.fromkeys(stats, 1)
        with megalens.monitor(trainer.model, trainer.optimizer, tracer=tracer, **every) as monitor:
            yield _measuring(monitor.statistics)
            _boxes.append(tracer.status()["instruments"]["monitor"]["black_box"])

    return begin


class _TrainerMon:
    """TrainerMon's way, written small: one reduction an operation, in float64 where it casts, and a CSV file a step and statistic."""

    ops: ClassVar[dict[str, Callable[[Tensor], Tensor]]] = {
        "norm": lambda x: x.double().norm(),
        "min": torch.min,
        "max": torch.max,
        "mean": lambda x: x.double().mean(),
        "zeros": lambda x: (x.abs() < 1e-8).sum() / x.numel(),
        "nans": lambda x: x.isnan().sum(),
    }

    def __init__(self, trainer: Trainer, folder: Path) -> None:
        self.trainer, self.folder, self.step, self.pays = trainer, folder, 0, True
        self.seen: dict[str, dict[str, Any]] = {}

    def note(self, name: str, value: Tensor) -> None:
        self.seen[name] = {op: reduce(value.detach()) for op, reduce in self.ops.items()}

    def write(self, what: str) -> None:
        table = [
            {"vpp_stage": 0, "name": name, "step": self.step}
            | {op: value.item() for op, value in row.items()}
            for name, row in self.seen.items()
        ]
        path = self.folder / f"{what}_{self.step}-{self.step}.csv"
        pandas.DataFrame(table).round(6).to_csv(path, index=False)
        self.seen.clear()

    def gradients(self, *_: Any) -> None:
        if self.pays:
            for name, each in self.trainer.model.named_parameters():
                if each.grad is not None:
                    self.note(name, each.grad)
            self.write("grad_reduced")

    def parameters(self, *_: Any) -> None:
        if self.pays:
            for name, each in self.trainer.model.named_parameters():
                self.note(name, each)
            self.write("param_updated")
        self.step += 1

    def saw(self, name: str, module: Any, given: Any, output: Any) -> None:
        for end, values in (("input", given), ("output", output)) if self.pays else ():
            for value in values if isinstance(values, tuple) else (values,):
                if isinstance(value, Tensor) and value.is_floating_point():
                    self.note(f"{name}.{end}", value)

    def activations(self, *_: Any) -> None:
        if self.pays:
            self.write("actv")
        self.step += 1


@contextmanager
def _peer(activations: bool, trainer: Trainer, tracer: Tracer) -> Iterator[Paid]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as hooks:
        peer, optimizer = _TrainerMon(trainer, Path(folder)), trainer.optimizer
        if activations:
            handles = [
                module.register_forward_hook(partial(peer.saw, name))
                for name, module in trainer.model.named_modules()
                if not [*module.children()]
            ]
            handles.append(optimizer.register_step_post_hook(peer.activations))
        else:
            handles = [
                optimizer.register_step_pre_hook(peer.gradients),
                optimizer.register_step_post_hook(peer.parameters),
            ]
        for handle in handles:
            hooks.callback(handle.remove)
        yield Paid(lambda pays: setattr(peer, "pays", pays))


def _delays(times: int) -> list[float]:
    """Seconds from the end of a step to its alarm at a client of the hub, which then has what the card shows."""
    found, asked = [], 0

    def asked_for(step: StepReadings, before: Sequence[StepReadings]) -> list[Alarm]:
        told = Alarm(step.step, "asked", "warning", "Asked for.", "scalar", "loss", "value", 1.0)
        return [told] if step.step == asked else []

    with _training() as (trainer, tracer):
        options = {"param": 1, "grad": 1, "activation": 10, "tracer": tracer, "rules": asked_for}
        with megalens.monitor(trainer.model, trainer.optimizer, **options), connect(tracer.run_id) as run:
            for step in range(1, 5 * times + 1):
                asked = step if step % 5 == 0 else 0
                trainer.step()
                ended = time.perf_counter()
                while asked and asked not in run.alarms()["step"].to_list():
                    if time.perf_counter() - ended > 30:
                        raise RuntimeError(f"The alarm of step {asked} did not come within 30 s.")
                    time.sleep(0.002)
                if asked:
                    found.append(time.perf_counter() - ended)
    return sorted(found)


_JUDGED = "parameters and gradients every step, judged, by coin"
_MONITOR = (
    Way(_JUDGED, _monitored("param", "grad"), 1.0),
    Way("· and what Adam keeps", _monitored("param", "grad", "optimizer_state"), share=0.2, spared=False),
    Way("activations of all layers every 10 steps, judged", _monitored("activation"), 1.0, 10, 0.2, False),
    Way("TrainerMon's way: parameters and gradients every step", partial(_peer, False), share=0.1, spared=False),
    Way("TrainerMon's way: activations every 10 steps", partial(_peer, True), None, 10, 0.1, False),
)  # fmt: skip


@benchmark(
    "What the training monitor costs a step",
    "9 steps",
    steps=(3000, 9, "steps of which parameters and gradients are judged"),
    alarms=(40, 4, "alarms that are waited for"),
)
def monitor_cost(options: argparse.Namespace) -> Measured:
    """What the training monitor costs a step, beside TrainerMon's way of measuring: steps of the demo model that are watched or not by chance."""

    def titled(title: str, left: bool) -> str:
        return title + (": one core left" if left else ": all cores train") * (title == _JUDGED)

    rows = by_coin(options.folder, _MONITOR, options.steps, titled)
    box = max(_boxes, key=lambda each: int(each["bytes"]))
    most = f"≤ {box['limit_bytes'] / 2**20:.0f}"
    delays = _delays(options.alarms)
    note = f"median {delays[len(delays) // 2]:.2f} s of {len(delays)}"
    rows += [
        judged("black box", box["bytes"] / 2**20, "MiB", most, f"{box['steps']} steps"),
        judged("from the end of a step to its alarm at a client, slowest", delays[-1], "s", "≤ 2", note),
    ]
    how = (
        f"{options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128), judged by all rules; a fifth as many of other statistics, a tenth of TrainerMon's way. "
        "That is written small: one reduction an operation (norm, min, max, mean, zeros, nans), in float64 where it casts, and a CSV file by pandas a step and statistic. "
        f"What is measured seldom is divided by its interval, on both sides. {_COIN}"
    )
    return Measured(rows, how, {"steps": options.steps, "kernel": kernel_name()})


_MORE = 4
"""Times as many steps of the job: processes that wait for each other vary more."""
_MOST = {"phases": 0.5, "layers": 1.0}
_TITLES = {"steps": "sums of each step", "phases": "phases every step", "layers": "layers every step", "operations": "operations every step"}  # fmt: skip


def _timing(tracer: Tracer) -> Paid:
    """Have steps timed that pay, by the settings in force, and no others."""
    instrument: Any = tracer.instrument("timeline")
    begins, on = instrument.step_begins, [True]
    instrument.step_begins = lambda number, held: begins(number, held or not on[0])
    return Paid(lambda pays: on.__setitem__(0, pays))


@contextmanager
def _timed(way: str, trainer: Trainer, tracer: Tracer) -> Iterator[Paid]:
    tracer.configure(timeline=way)
    trainer.step()
    yield _timing(tracer)


@contextmanager
def replica(
    rank: int, folder: str, config: GPTConfig, optimized: Any = torch.optim.AdamW, **options: Any
) -> Iterator[tuple[GPT, Tracer, Callable[[Any], None]]]:
    """Be one of 4 replicas of a model; give it, its tracer, and what takes a step on a batch."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "runtime")
    joined(rank, PROCESSES, f"{folder}/store")
    model = GPT(config)
    replicated = DistributedDataParallel(model)
    optimizer = optimized(model.parameters())

    def learn(ids: Tensor) -> None:
        replicated(ids).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with traced(model, rank == 0, record=folder, linger=0.1, **options) as tracer:
        distributed.barrier()
        yield model, tracer, learn
    distributed.destroy_process_group()


def _job(steps: int, folder: Path) -> list[Row]:
    """Train 4 replicas; return the lines of the table, with what a rank sends in a step at the finest."""
    folder.mkdir()
    answers = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(_costing, (str(folder), steps, answers), nprocs=PROCESSES, join=True)
    told = [answers.get() for _ in range(PROCESSES)]
    rows = []
    for way, most in _MOST.items():
        of_ranks = [found[way] for found, _ in told]
        # All wait for the slowest in each step, so that any rank's clock serves; more processes than cores train, so that each second of a processor is taken from them, on all cores alike.
        aside = sum(sum(each.aside) for each in of_ranks) / (os.cpu_count() or 1)
        rows.append(coin_row(f"job of {PROCESSES} processes: {_TITLES[way]}", of_ranks[0], most, aside))
    spans = max(each for _, each in told)
    size = spans * STREAMS["spans"].policy.row_bytes / 1e3
    what = "a rank and step at operations, on the wire"
    return [*rows, judged(what, size, "kB", "≤ 50", f"{spans:.0f} spans")]


def _costing(rank: int, folder: str, steps: int, answers: Any) -> None:
    found: dict[str, Tossed] = {}
    with replica(rank, folder, GPTConfig()) as (_, tracer, learn):
        ids = torch.randint(0, 200, (4, 128))

        def step(pays: bool = True) -> None:
            paid.pays(pays)
            with tracer.step():
                learn(ids)

        paid = _timing(tracer)
        for way in (*_MOST, "operations"):
            if rank == 0:
                tracer.configure(timeline=way)
            # It takes a few steps to be agreed on.
            timed(step, 4)
            if way in _MOST:
                found[way] = tossed(step, lambda: _seconds_aside(tracer), steps)
        timed(step, 4)
    spans = 0.0
    if rank == 0:
        of_steps = open_run(tracer.folder).table("spans").to_pandas().groupby("step").size()
        spans = float(of_steps.max()) / PROCESSES
    answers.put((found, spans))


@benchmark("What timing costs a step", "9 steps", steps=(400, 9, "steps of each way"))
def timeline_cost(options: argparse.Namespace) -> Measured:
    """What timing costs a step: steps of the demo model alone, and of a job of 4 processes, that are timed or not by chance, in one run."""
    ways = [Way(title, partial(_timed, way), _MOST.get(way)) for way, title in _TITLES.items()]
    alone = by_coin(
        options.folder,
        ways,
        options.steps,
        lambda title, left: f"{'a core free' if left else 'no core free'}: {title}",
    )
    job = _job(_MORE * options.steps, options.folder / "job")
    how = (
        f"{options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way. {_COIN} Then {PROCESSES} processes with `DistributedDataParallel` over gloo on the same cores, one thread each, 4 sequences a step, {_MORE * options.steps} steps in every way, timed or not on all ranks alike; "
        "the processor time of producers and hub is added as far as it takes all cores alike. What hooks cost in a step that is not timed, where they look at a flag, is not in it."
    )
    return Measured([*alone, *job], how, {"steps": options.steps})
