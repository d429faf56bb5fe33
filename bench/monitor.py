"""The training monitor: what it costs a step, beside TrainerMon's way of measuring, and what it finds in real trainings by torch, watched with its own settings."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from math import comb, exp, lgamma, log
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import pandas
import torch
from torch import Tensor

import megalens
from megalens.demo import Trainer
from megalens.instruments.monitor.rule import Alarm
from megalens.protocol import StepReadings
from megalens.runs.connecting import connect
from megalens.tracer import Tracer
from megalens.tracer.moments import kernel_name
from megalens.tracer.moments.intervals import Intervals
from tests.kit.monitor_faults import ranks
from tests.kit.monitor_faults.healthy import HEALTHY
from tests.kit.monitor_faults.judging import Verdict, verdict_of
from tests.kit.monitor_faults.running import KINDS, LOCAL, false_alarms, fault_alarms, kind_alarms
from tests.kit.monitor_faults.unseen import CHOSEN

from .common import tossed
from .report import Measured, Row, benchmark, judged, share
from .statistics import Way, cores_left, measured, rows_of, seconds_aside, tossed_row, training

__all__ = ["monitor_cost", "monitor_faults"]

_NOTHING = {"param": 0, "grad": 0, "activation": 0, "optimizer_state": 0}
_box: dict[str, Any] = {}


def _monitor(**measures: int) -> Callable[[Trainer, Tracer], Any]:
    @contextmanager
    def begin(trainer: Trainer, tracer: Tracer) -> Iterator[Any]:
        with megalens.monitor(
            trainer.model, trainer.optimizer, tracer=tracer, **{**_NOTHING, **measures}
        ) as monitor:
            yield monitor.statistics
            box = tracer.status()["instruments"]["monitor"]["black_box"]
            _box.update(box if box["bytes"] > _box.get("bytes", -1) else {})

    return begin


class _Peer:
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
        self.trainer, self.folder, self.step, self.spent_ns = trainer, folder, 0, 0
        self.activations: dict[str, dict[str, Any]] = {}

    def metrics(self, value: Tensor) -> dict[str, Any]:
        value = value.detach()
        return {name: op(value) for name, op in self.ops.items()}

    def write(self, what: str, rows: dict[str, dict[str, Any]]) -> None:
        table = [
            {"vpp_stage": 0, "name": name, "step": self.step}
            | {op: value.item() for op, value in row.items()}
            for name, row in rows.items()
        ]
        path = self.folder / f"{what}_{self.step}-{self.step}.csv"
        pandas.DataFrame(table).round(6).to_csv(path, index=False)

    def gradients(self, *_: Any) -> None:
        named = self.trainer.model.named_parameters()
        self.write(
            "grad_reduced", {name: self.metrics(each.grad) for name, each in named if each.grad is not None}
        )

    def parameters(self, *_: Any) -> None:
        named = self.trainer.model.named_parameters()
        self.write("param_updated", {name: self.metrics(each) for name, each in named})
        self.step += 1

    def saw(self, name: str, given: Any, output: Any) -> None:
        for end, values in (("input", given), ("output", output)):
            several = values if isinstance(values, tuple) else (values,)
            for value in several:
                if isinstance(value, Tensor) and value.is_floating_point():
                    self.activations[f"{name}.{end}"] = self.metrics(value)

    def activations_end(self, *_: Any) -> None:
        self.write("actv", self.activations)
        self.activations.clear()
        self.step += 1


def _peer(activations: bool) -> Callable[[Trainer, Tracer], Any]:
    @contextmanager
    def begin(trainer: Trainer, tracer: Tracer) -> Iterator[_Peer]:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as hooks:
            peer = _Peer(trainer, Path(folder))
            step = trainer.optimizer
            handles = [step.register_step_post_hook(peer.activations_end if activations else peer.parameters)]
            if activations:
                handles += [
                    module.register_forward_hook(
                        lambda _, given, output, name=name: peer.saw(name, given, output)
                    )
                    for name, module in trainer.model.named_modules()
                    if not [*module.children()]
                ]
            else:
                handles.append(step.register_step_pre_hook(peer.gradients))
            for handle in handles:
                hooks.callback(handle.remove)
            yield peer

    return begin


def _delays(times: int) -> list[float]:
    """Seconds from the end of a step to its alarm at a client of the hub, which then has what the card shows."""
    found, asked = [], 0

    def asked_for(step: StepReadings, before: Sequence[StepReadings]) -> list[Alarm]:
        told = Alarm(step.step, "asked", "warning", "Asked for.", "scalar", "loss", "value", 1.0)
        return [told] if step.step == asked else []

    with training("bench-alarm-delay") as (trainer, tracer):
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
    return found


class _AtSome(Intervals):
    """Intervals that hold where they are told to."""

    hold: ClassVar[list[bool]] = [True]

    def due(self, step: int) -> frozenset[str]:
        return super().due(step) if self.hold[0] else frozenset()


def _tossed(steps: int) -> Iterator[Row]:
    """Measure parameters and gradients once more, and more exactly: with all cores training, and with one left to producer and hub."""
    for left in cores_left():
        with (
            training("bench-tossed") as (trainer, tracer),
            _monitor(param=1, grad=1)(trainer, tracer) as statistics,
        ):
            statistics.intervals = at_some = _AtSome(**asdict(statistics.intervals))

            def step(pays: bool, trainer: Trainer = trainer, at_some: _AtSome = at_some) -> None:
                at_some.hold[0] = pays
                trainer.step()

            found = tossed(step, lambda tracer=tracer: sum(seconds_aside(tracer)), steps)
        where = "one core left" if left else "all cores train"
        title = f"parameters and gradients every step, judged, by coin: {where}"
        # With a core to spare what others do is not taken from the training.
        yield tossed_row(title, found, 1.0, 0.0 if left else found.processor)


WAYS = {
    "off": Way("", {"param": 0}),
    "monitor": Way(
        "parameters and gradients every step, judged by all rules", {}, begin=_monitor(param=1, grad=1)
    ),
    "state": Way(
        "· and what Adam keeps", {}, begin=_monitor(param=1, grad=1, optimizer_state=1)
    ),
    "activation": Way(
        "activations of all layers every 10 steps, judged", {}, spread=10, most=1.0, every=2, begin=_monitor(activation=1)
    ),
    "peer": Way("TrainerMon's way: parameters and gradients every step", {}, every=2, begin=_peer(False)),
    "peer activation": Way(
        "TrainerMon's way: activations every 10 steps", {}, spread=10, every=2, begin=_peer(True)
    ),
}  # fmt: skip


@benchmark(
    "What the training monitor costs a step",
    "6 rounds",
    rounds=(120, 6, "blocks without the monitor"),
    steps=(4, "steps a block"),
    alarms=(40, 4, "alarms that are waited for"),
)
def monitor_cost(options: argparse.Namespace) -> Measured:
    """What the training monitor costs a step, beside TrainerMon's way of measuring: blocks of steps of the demo model in random order, in one run."""
    rounds = options.rounds
    rows = [*rows_of(measured(options, WAYS), WAYS), *_tossed(25 * rounds)]
    if _box:
        most = f"≤ {_box['limit_bytes'] / 2**20:.0f}"
        rows.append(judged("black box", _box["bytes"] / 2**20, "MiB", most, f"{_box['steps']} steps"))
    what = "from the end of a step to its alarm at a client, slowest"
    delays = sorted(_delays(options.alarms))
    note = f"median {delays[len(delays) // 2]:.2f} s of {len(delays)}"
    rows.append(judged(what, delays[-1], "s", "≤ 2", note))
    how = (
        f"{rounds} rounds; in each, {options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way, in random order, after one step that is not measured. A hub records it all, and all rules judge. "
        "TrainerMon's way is written small: one reduction an operation (norm, min, max, mean, zeros, nans), in float64 where it casts, and a CSV file by pandas a step and statistic. What is measured seldom is divided by its interval, on both sides. Time of a block over that of the block "
        f"without, in the same round; mean without the smallest and largest tenth; 95 % bootstrap interval over rounds. By coin: each of {25 * rounds} steps of one training is measured or not by chance, and what that adds to it and to the step after it is estimated in stretches of 8 steps (bench/common.py); "
        f"where all cores train, the processor time of producer and hub, whose work comes later, is added in full."
    )
    facts = {"rounds": rounds, "torch_threads": torch.get_num_threads(), "kernel": kernel_name()}
    return Measured(rows, how, facts)


_SOON = 20
"""Steps within which a small mistake is to be found."""


@benchmark(
    "What the training monitor finds",
    "few faults and steps",
    steps=(500, 200, "steps of each healthy training"),
    every=(1, 8, "of so many faults one is put in"),
)
def monitor_faults(options: argparse.Namespace) -> Measured:
    """What the training monitor finds, and how often it is wrong: trainings with a fault put in, and healthy ones in which it is to stay silent."""
    every, steps = options.every, options.steps
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        # Thresholds were chosen on the first of the kinds, which say nothing here.
        parts = (
            (LOCAL, range(0, len(LOCAL), every), fault_alarms),
            (KINDS, range(len(CHOSEN), len(KINDS), every), kind_alarms),
        )
        local, kinds = (
            [verdict_of(of[at], *given) for at, given in zip(chosen, pool.map(alarms, chosen), strict=True)]
            for of, chosen, alarms in parts
        )
        found = [*local, *ranks.verdicts(ranks.FAULTS[:: (every + 1) // 2])]
        for each in (*found, *kinds):
            print(_line(each), flush=True)
        chosen = range(0, len(HEALTHY), every)
        healthy = list(pool.map(false_alarms, chosen, [steps] * len(chosen)))
    if not options.quick:
        healthy.append(ranks.healthy(3, steps))
    for told, number in Counter(told for _, _, alarms in healthy for told in alarms).items():
        print(f"false alarm × {number}: {told}", flush=True)
    how = (
        f"{len(found)} faults, each put into a real training on the CPU that is watched by megalens.monitor with its own settings and activations at every step: a small GPT, one with experts, one in half precision, a "
        "classifier, and replicas on 2 to 4 processes. A fault is found when the first alarm of severity critical or warning comes in its step or one of the 40 after it (20 with several processes), and none before. Wrong values count as found when "
        f"that is in their step or the next. {len(healthy)} healthy trainings of {steps} steps differ in seed, size, schedule, warm-up, optimizer, betas, clipping, batch, micro-batches, dropout, precision, model and kind, with seeds that no threshold was chosen with; two go on from a checkpoint, and one is of three processes. Then {len({_kind(each) for each in kinds})} kinds of small mistakes on "
        f"{len({each.fault.name.partition(':')[0] for each in kinds})} models and seeds that no threshold was chosen on, found when the first alarm comes within {_SOON} steps. What follows from an alarm is none. Intervals: exact, of shares and of a Poisson number."
    )
    return Measured([*_rows(found, healthy), *_kind_rows(kinds)], how)


def _rows(found: Sequence[Verdict], healthy: Sequence[tuple[int, int, list[str]]]) -> list[Row]:
    values = [each for each in found if each.fault.value]
    placed = [each for each in found if each.fault.module or each.fault.direction or each.fault.rank >= 0]
    steps, peer = (sum(each[at] for each in healthy) for at in (0, 1))
    false = sum(len(alarms) for _, _, alarms in healthy)
    rows = [
        _share("faults that were found", found, lambda each: each.found, 97),
        _share("wrong values found within one step", values, lambda each: each.soon, 100),
        _share(
            "first anomaly right in rank, module and part",
            placed,
            lambda each: each.found and each.right == 1,
            95,
        ),
        _share("· within the first three", placed, lambda each: each.found and 0 < each.right <= 3, 100),
        _share("faults that the peer's two rules report", found, lambda each: each.peer),
        _share("· and report nothing before", found, lambda each: each.peer and not each.peer_before),
        _number("false alarms in 100,000 healthy steps", false, steps, 1.0),
        _number("· of the peer's two rules", peer, steps),
    ]
    for each in found:
        early = "" if each.first == "nothing" else f"too early: {each.first}"
        rows += [] if each.found else [Row(f"missed: {each.fault.name}", 1, "", note=early)]
    elsewhere = [each for each in placed if each.found and each.right != 1]
    unit = "th alarm that is right"
    rows += [Row(f"elsewhere: {e.fault.name}", e.right, unit, note=f"first: {e.first}") for e in elsewhere]
    return rows


def _kind(each: Verdict) -> str:
    return each.fault.name.partition(": ")[2]


def _kind_rows(kinds: Sequence[Verdict]) -> list[Row]:
    def soon(each: Verdict) -> bool:
        return each.found and each.late <= _SOON

    placed = [each for each in kinds if each.fault.module or each.fault.direction]
    names = dict.fromkeys(map(_kind, kinds))
    return [
        _share("small mistakes found, of all kinds", kinds, soon, 90),
        _share(
            "· first anomaly right in module and part", placed, lambda each: soon(each) and each.right == 1
        ),
        *(_share(f"· {name}", [e for e in kinds if _kind(e) == name], soon) for name in names),
        *(Row(f"missed: {each.fault.name}", 1, "") for each in kinds if not soon(each)),
    ]


def _share(
    what: str, of: Sequence[Verdict], good: Callable[[Verdict], bool], target: float | None = None
) -> Row:
    aim = "" if target is None else f"≥ {target} %"
    return share(what, sum(good(each) for each in of), max(1, len(of)), aim, _exact)


def _number(what: str, number: int, steps: int, target: float | None = None) -> Row:
    low, high = (1e5 * end / steps for end in _poisson(number))
    note, aim = f"{number} in {steps:,} steps", "" if target is None else f"≤ {target:.0f}"
    return judged(what, 1e5 * number / steps, "", aim, note, low=low, high=high)


def _exact(good: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Clopper and Pearson."""

    def at_least(share: float, least: int) -> float:
        return sum(comb(of, n) * share**n * (1 - share) ** (of - n) for n in range(least, of + 1))

    low = 0.0 if good == 0 else _where(lambda share: at_least(share, good) - 0.025, 0.0, 1.0)
    high = 1.0 if good == of else _where(lambda share: at_least(share, good + 1) - 0.975, 0.0, 1.0)
    return low, high


def _poisson(number: int) -> tuple[float, float]:
    """Return the 95 % interval of the mean of a Poisson number, one-sided where it is 0."""

    def at_most(mean: float, most: int) -> float:
        return sum(exp(n * log(mean) - mean - lgamma(n + 1)) for n in range(most + 1))

    top = 2.0 * number + 30
    low = 0.0 if number == 0 else _where(lambda mean: 0.975 - at_most(mean, number - 1), 1e-9, top)
    return low, _where(lambda mean: (0.05 if number == 0 else 0.025) - at_most(mean, number), 1e-9, top)


def _where(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def _line(each: Verdict) -> str:
    place = each.fault.module or each.fault.direction or each.fault.rank >= 0
    word = (
        ("found" if not place or each.right == 1 else f"elsewhere ({each.right})") if each.found else "MISSED"
    )
    return f"{word:14}{each.fault.name}: {each.late:+d} {each.first}"
