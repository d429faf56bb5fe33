"""What the training monitor costs a step, beside TrainerMon's way of measuring: blocks of steps of the demo model in random order, in one run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import pandas
import torch
from torch import Tensor

import megalens
from megalens.demo import Trainer
from megalens.demo.model import GPT
from megalens.demo.train import TrainConfig, load_corpus
from megalens.instruments.monitor.rule import Alarm
from megalens.protocol import StepReadings
from megalens.runs.connecting import connect
from megalens.tracer import Tracer
from megalens.tracer.moments import kernel_name
from megalens.tracer.moments.intervals import Intervals

from .common import Row, asked, judged, report, tossed
from .statistics import Way, measured, rows_of, seconds_aside

__all__ = ["main"]

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

    model = GPT()
    with megalens.trace(model, name="bench-alarm-delay", linger=0.0) as tracer:
        trainer = Trainer(model, load_corpus(), tracer, TrainConfig(steps=10**9))
        options = {"param": 1, "grad": 1, "activation": 10, "tracer": tracer, "rules": asked_for}
        with megalens.monitor(model, trainer.optimizer, **options), connect(tracer.run_id) as run:
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


def _tossed(steps: int) -> list[Row]:
    """Measure parameters and gradients once more, and more exactly: with all cores training, and with one left to producer and hub."""
    rows, threads = [], torch.get_num_threads()
    for cores in (threads, threads - 1):
        torch.set_num_threads(max(1, cores))
        model = GPT()
        with megalens.trace(model, name="bench-tossed", linger=0.0) as tracer:
            trainer = Trainer(model, load_corpus(300_000), tracer, TrainConfig(steps=10**9))
            with _monitor(param=1, grad=1)(trainer, tracer) as statistics:
                statistics.intervals = at_some = _AtSome(**asdict(statistics.intervals))

                def step(pays: bool, trainer: Trainer = trainer, at_some: _AtSome = at_some) -> None:
                    at_some.hold[0] = pays
                    trainer.step()

                found = tossed(step, lambda tracer=tracer: sum(seconds_aside(tracer)), steps)
        # With a core to spare what others do is not taken from the training.
        aside = found.processor if cores == threads else 0.0
        where = "all cores train" if cores == threads else "one core left"
        rows.append(found.row(f"parameters and gradients every step, judged, by coin: {where}", 1.0, aside))
    torch.set_num_threads(threads)
    return rows


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


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/monitor_cost.json``; return the page of all results."""
    options = asked(
        __doc__, arguments, "6 rounds", rounds=(120, "blocks without the monitor"), steps=(4, "steps a block")
    )
    rounds = 6 if options.quick else options.rounds
    rows = rows_of(measured(rounds, options.steps, WAYS), WAYS)
    rows += _tossed(25 * rounds)
    if _box:
        rows.append(
            judged(
                "black box",
                _box["bytes"] / 2**20,
                "MiB",
                f"≤ {_box['limit_bytes'] / 2**20:.0f}",
                f"{_box['steps']} steps",
            )
        )
    delays = sorted(_delays(4 if options.quick else 40))
    rows.append(
        judged(
            "from the end of a step to its alarm at a client, slowest",
            delays[-1],
            "s",
            "≤ 2",
            f"median {delays[len(delays) // 2]:.2f} s of {len(delays)}",
        )
    )
    how = (
        f"{rounds} rounds; in each, {options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way, in random order, after one step that is not measured. A hub records it all, and all rules judge. "
        "TrainerMon's way is written small: one reduction an operation (norm, min, max, mean, zeros, nans), in float64 where it casts, and a CSV file by pandas a step and statistic. What is measured seldom is divided by its interval, on both sides. Time of a block over that of the block "
        f"without, in the same round; mean without the smallest and largest tenth; 95 % bootstrap interval over rounds. By coin: each of {25 * rounds} steps of one training is measured or not by chance, and what that adds to it and to the step after it is estimated in stretches of 8 steps (bench/common.py); "
        f"where all cores train, the processor time of producer and hub, whose work comes later, is added in full."
    )
    return report(
        "monitor_cost", "What the training monitor costs a step", rows, how=how, quick=options.quick,
        facts={"rounds": rounds, "torch_threads": torch.get_num_threads(), "kernel": kernel_name()},
    )  # fmt: skip


if __name__ == "__main__":
    main()
