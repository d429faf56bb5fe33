"""Faults that the training monitor is to find, and healthy trainings in which it is to stay silent: ``python -m bench.monitor_faults [--quick]``.

Every training is a real one by torch, watched by ``megalens.monitor`` with its own settings. A fault counts as found when the first alarm of severity critical or warning comes at its step or later; its place is right when
that alarm names the module and the part of the step in which it was put.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import megalens
from bench.common import Row, write_results
from megalens.demo.data import Windows
from megalens.demo.model import GPT, GPTConfig
from megalens.demo.text import load_corpus
from megalens.monitoring.trainermon.rules import RecordedRules, rules_from
from megalens.protocol import MOMENT_COLUMNS, StepReadings

__all__ = ["FAULTS", "Fault", "Training", "main"]

AT, AFTER, SEQUENCE = 80, 40, 24


class PeerRules:
    """TrainerMon's two rules, with the thresholds of its documentation, on the same rows: norm, mean, min and max of each tensor."""

    def __init__(self) -> None:
        self._rules = RecordedRules(
            rules_from(
                [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}, {"rule_name": "AnomalyNan"}]
            )
        )
        self.steps: set[int] = set()
        """Those in which they report anything."""

    def __call__(self, step: StepReadings, before: Sequence[StepReadings]) -> list[Any]:
        """Judge a step, as a rule of one's own does; the alarms of ours stay as they are."""
        for part in step.readings:
            column = dict(zip(MOMENT_COLUMNS, part.rows.T, strict=True))
            bad = np.where(column["nan_count"] > 0, np.nan, np.where(column["inf_count"] > 0, np.inf, 0.0))
            ops = {
                "norm": np.sqrt(column["m2"] + column["count"] * column["mean"] ** 2) + bad,
                "mean": column["mean"] + bad,
                "min": column["min"] + bad,
                "max": column["max"] + bad,
            }
            for op, values in ops.items():
                for name, value in zip(part.names, values.tolist(), strict=True):
                    if self._rules.judge(f"{name}/{part.stat}", op, value, step.step):
                        self.steps.add(step.step)
        return []


@dataclass
class Training:
    """A small training, which faults may reach into."""

    seed: int = 0
    rate: float = 1e-3
    warmup: int = 20
    schedule: str = "cosine"
    steps: int = AT + AFTER
    batch: int = 16
    layers: int = 3
    hidden: int = 32
    clip: float = 1.0
    betas: tuple[float, float] = (0.9, 0.95)
    sgd: bool = False
    step: int = 0
    scale: float = 1.0
    """By which the learning rate is multiplied."""
    last: Tensor | None = None
    peer: PeerRules = field(default_factory=PeerRules)
    model: GPT = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        self.model = GPT(GPTConfig(256, self.layers, self.hidden, 2, sequence=SEQUENCE))
        weights = self.model.parameters()
        self.optimizer = (
            torch.optim.SGD(weights, self.rate, momentum=0.9)
            if self.sgd
            else torch.optim.AdamW(weights, self.rate, betas=self.betas, weight_decay=0.1)
        )
        self.windows = Windows(load_corpus().train, SEQUENCE - 1, self.seed)

    def weight(self, name: str) -> nn.Parameter:
        """Return a parameter by name."""
        return dict(self.model.named_parameters())[name]

    def rate_now(self) -> float:
        """Return the learning rate of the step."""
        at = self.step
        if at <= self.warmup:
            share = at / self.warmup
        elif self.schedule == "restart":
            share = 0.51 + 0.49 * math.cos(math.pi * ((at - self.warmup) % 200) / 200)
        elif self.schedule == "steps":
            share = 0.1 ** (3 * at // (self.steps + 1))
        elif self.schedule == "constant":
            share = 1.0
        else:
            share = 0.5 * (1 + math.cos(math.pi * (at - self.warmup) / max(1, self.steps - self.warmup + 1)))
        return self.rate * share * self.scale

    def run(self, fault: Fault | None = None) -> Iterator[list[Any]]:
        """Train; give the alarms that each step has raised so far."""
        if fault is not None:
            fault.begin(self)
        reach = fault.reach if fault is not None else lambda training, where: None
        monitor = megalens.monitor(self.model, self.optimizer, hub=None, activation=1, rules=[self.peer])
        with monitor:
            for at in range(1, self.steps + 1):
                self.step = at
                for group in self.optimizer.param_groups:
                    group["lr"] = self.rate_now()
                self.ids = self.windows.random(self.batch)
                reach(self, "data")
                with monitor.step():
                    loss = self.model.loss(self.ids)
                    self.optimizer.zero_grad()
                    (loss if not getattr(self, "upside_down", False) else -loss).backward()
                    if self.clip:
                        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                    reach(self, "update")
                    self.optimizer.step()
                    reach(self, "weights")
                    monitor.tracer.log(loss=loss, lr=self.rate_now())
                yield monitor.alarms
        yield monitor.alarms


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at step :data:`AT`.

    Attributes
    ----------
    name : str
        What it is.
    reach : callable
        Takes the training and where in the step it is: ``data``, ``update`` (before) or ``weights`` (after).
    begin : callable
        Takes the training before its first step.
    module, direction : str
        Where the first anomaly should be; empty where it is of no one module.
    first : int
        The step at which it comes.
    value : bool
        Whether it is a wrong value, to be found in its own step.
    """

    name: str
    reach: Callable[[Training, str], Any] = lambda training, where: None
    begin: Callable[[Training], Any] = lambda training: None
    module: str = ""
    direction: str = ""
    first: int = AT
    value: bool = False


def _flip(bit: int) -> Callable[[Tensor], None]:
    def flip(values: Tensor) -> None:
        flat = values.view(-1)
        flat[:1].view(torch.int32).bitwise_xor_(1 << bit)

    return flip


def _put(value: float) -> Callable[[Tensor], None]:
    return lambda values: values.view(-1)[:1].fill_(value)


_VALUES: dict[str, Callable[[Tensor], Any]] = {
    "NaN": _put(math.nan),
    "infinity": _put(math.inf),
    "flipped bit 30": _flip(30),
    "zeros": lambda values: values.zero_(),
}
_MODULES = ("blocks.0.mlp.fc1", "blocks.1.attention.qkv", "blocks.2.mlp.fc2")


def _value_faults() -> Iterator[Fault]:
    for module in _MODULES:
        for word, change in _VALUES.items():

            def forward(training: Training, module: str = module, change: Any = change) -> None:
                def spoil(_: nn.Module, given: Any, output: Tensor) -> Tensor:
                    if training.step == AT:
                        output = output.clone()
                        with torch.no_grad():
                            change(output)
                    return output

                training.model.get_submodule(module).register_forward_hook(spoil)

            def backward(training: Training, module: str = module, change: Any = change) -> None:
                def spoil(gradient: Tensor) -> Tensor:
                    gradient = gradient.clone()
                    if training.step == AT:
                        change(gradient)
                    return gradient

                training.weight(f"{module}.weight").register_hook(spoil)

            def weights(training: Training, where: str, module: str = module, change: Any = change) -> None:
                if where == "weights" and training.step == AT:
                    change(training.weight(f"{module}.weight").data)

            yield Fault(
                f"{word} in the output of {module}",
                begin=forward,
                module=module,
                direction="forward",
                value=True,
            )
            yield Fault(
                f"{word} in the gradient of {module}",
                begin=backward,
                module=module,
                direction="reduction",
                value=True,
            )
            yield Fault(
                f"{word} in the weight of {module}", weights, module=module, direction="update", value=True
            )


def _from(
    where: str, change: Callable[[Training], Any], *, once: bool = False
) -> Callable[[Training, str], None]:
    def reach(training: Training, here: str) -> None:
        if here == where and (training.step == AT if once else training.step >= AT):
            change(training)

    return reach


def _group(**settings: Any) -> Callable[[Training], None]:
    return lambda training: training.optimizer.param_groups[0].update(settings)


def _scaled(name: str, factor: float) -> Callable[[Training], Any]:
    return lambda training: training.weight(name).data.mul_(factor)


def _outlier(module: str) -> Callable[[Training], Any]:
    def put(training: Training) -> None:
        values = training.weight(f"{module}.weight").data
        values.view(-1)[0] = 16 * values.abs().max()

    return put


def _held(training: Training, where: str) -> None:
    weight = training.weight("blocks.1.mlp.fc1.weight")
    if training.step >= AT and where == "update":
        training.last = weight.detach().clone()
    elif training.step >= AT and where == "weights" and training.last is not None:
        weight.data.copy_(training.last)


def _again(training: Training, where: str) -> None:
    if where == "data":
        if training.step >= AT and training.last is not None:
            training.ids = training.last
        training.last = training.ids


def _set(name: str, value: Any) -> Callable[[Training], None]:
    return lambda training: setattr(training, name, value)


def _tight(training: Training) -> None:
    training.clip = 0.3


def _shuffled(training: Training) -> None:
    training.ids = training.ids.flatten()[torch.randperm(training.ids.numel())].view_as(training.ids)


_QKV, _FC1 = "blocks.1.attention.qkv.weight", "blocks.1.mlp.fc1.weight"

FAULTS: tuple[Fault, ...] = (
    *_value_faults(),
    *(
        Fault(f"a value of the weight of {module} sixteen times the largest", _from("weights", _outlier(module), once=True), module=module, direction="update", value=True)
        for module in _MODULES
    ),
    *(
        Fault(f"beta {betas} from step {AT} on", _from("update", _group(betas=betas)), direction="optimizer")
        for betas in ((0.0, 0.95), (0.9, 0.5), (0.999, 0.9999), (0.5, 0.95))
    ),
    Fault("beta2 0.5 from the first step on", begin=_group(betas=(0.9, 0.5)), direction="optimizer", first=1),
    Fault("beta1 0 from the first step on", begin=_group(betas=(0.0, 0.95)), direction="optimizer", first=1),
    Fault("lost optimizer state", _from("update", lambda t: t.optimizer.state.clear(), once=True), direction="optimizer"),
    Fault("no clipping", _from("data", _set("clip", 0.0)), begin=_tight, direction="optimizer"),
    Fault("learning rate × 10", _from("data", _set("scale", 10.0)), direction="optimizer"),
    Fault("learning rate × 100", _from("data", _set("scale", 100.0)), direction="optimizer"),
    Fault("weight decay 100", _from("update", _group(weight_decay=100.0)), direction="update"),
    Fault("gradient ascent", _from("data", _set("upside_down", True))),
    Fault("one batch again and again", _again),
    Fault("broken tokenizer", _from("data", lambda t: setattr(t, "ids", (t.ids * 7 + 13) % 256))),
    Fault("shuffled tokens", _from("data", _shuffled)),
    Fault("one token only", _from("data", lambda t: t.ids.fill_(65))),
    Fault("half of the batch dropped", _from("data", lambda t: setattr(t, "ids", t.ids[: t.batch // 2]))),
    Fault("one of eight parts dropped", _from("data", lambda t: setattr(t, "ids", t.ids[: t.batch * 7 // 8]))),
    Fault("a frozen weight", _held, module="blocks.1.mlp.fc1", direction="update"),
    Fault("a weight that begins ten times too large", begin=_scaled(_FC1, 10), module="blocks.1.mlp.fc1", first=1),
    Fault("a weight that begins ten times too small", begin=_scaled(_FC1, 0.1), module="blocks.1.mlp.fc1", first=1),
    Fault("attention that sees one position", _from("weights", _scaled(_QKV, 30), once=True), module="blocks.1.attention.qkv", direction="update"),
    Fault("a weight doubled at each step", _from("weights", _scaled(_FC1, 2)), module="blocks.1.mlp.fc1", direction="update"),
)  # fmt: skip

HEALTHY: tuple[dict[str, Any], ...] = (
    {"seed": 1},
    {"seed": 2, "schedule": "restart", "rate": 2e-3},
    {"seed": 3, "schedule": "steps"},
    {"seed": 4, "schedule": "constant", "rate": 5e-4},
    {"seed": 5, "sgd": True, "rate": 0.05},
    {"seed": 6, "layers": 2, "hidden": 48},
    {"seed": 7, "betas": (0.9, 0.999), "warmup": 100},
    {"seed": 8, "batch": 8},
    {"seed": 9, "clip": 0.0, "rate": 5e-4},
    {"seed": 10, "hidden": 24, "clip": 0.3},
)


def _first(alarms: list[Any]) -> Any:
    serious = [alarm for alarm in alarms if alarm.severity != "note"]
    return min(serious, key=lambda alarm: (alarm.step, alarm.place), default=None)


def _wilson(of: int, good: int) -> tuple[float, float]:
    share, z = good / of, 1.96
    middle = share + z * z / (2 * of)
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return (middle - spread) / (1 + z * z / of) * 100, (middle + spread) / (1 + z * z / of) * 100


def main() -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.monitor_faults")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--steps", type=int, default=1000, help="healthy steps of each training")
    options = parser.parse_args()
    torch.set_num_threads(1)
    faults = FAULTS[:: 8 if options.quick else 1]
    found = soon = placed = values = located = peer_found = 0
    for fault in faults:
        alarms: list[Any] = []
        training = Training()
        for alarms in training.run(fault):
            if training.step > fault.first + 2 and _first(alarms) is not None:
                break
        first = _first(alarms)
        good = first is not None and first.step >= fault.first
        reported = min(training.peer.steps, default=0)
        peer_found += fault.first <= reported <= fault.first + AFTER
        found += good
        values += fault.value
        soon += bool(fault.value and good and first.step <= fault.first + 1)
        named = bool(fault.module or fault.direction)
        located += named
        right = bool(
            good
            and first.name.startswith(fault.module)
            and fault.direction in ("", first.direction)
            and first.step <= fault.first + AFTER
        )
        placed += named and right
        what = (
            "none"
            if first is None
            else f"{first.step - fault.first:+d} {first.rule} {first.direction} {first.name}"
        )
        print(
            f"{'found' if good else 'MISSED':7}{'' if right or not named else 'ELSEWHERE '}{fault.name}: {what}",
            flush=True,
        )
    steps = false = peer_false = 0
    for settings in HEALTHY[:: 5 if options.quick else 1]:
        training = Training(**settings, steps=200 if options.quick else options.steps)
        *_, alarms = training.run()
        steps += training.steps
        peer_false += len(training.peer.steps)
        serious = [alarm for alarm in alarms if alarm.severity != "note"]
        false += len({alarm.step for alarm in serious})
        for alarm in serious[:5]:
            print(
                f"false alarm in {settings}: step {alarm.step} {alarm.rule} {alarm.stat} {alarm.name}: {alarm.sentence}",
                flush=True,
            )
    # Of none in n steps, 3 / n is the upper end of 95 %.
    most = 3 / steps if not false else (false + 2 * math.sqrt(false) + 2) / steps
    rows = [
        _share("faults that were found", len(faults), found, 97),
        _share("faults that the peer's two rules found, and raised no alarm before", len(faults), peer_found, None),
        Row("false alarms of the peer's two rules in 100,000 healthy steps", 1e5 * peer_false / steps, "", note=f"{peer_false} in {steps} steps"),
        _share("wrong values found within one step", values, soon, 100),
        _share("first anomaly in the right part and module", located, placed, 95),
        Row("false alarms in 100,000 healthy steps", 1e5 * false / steps, "", 0.0, 1e5 * most, "≤ 1", None if not false and most > 1e-5 else false == 0, f"{false} in {steps} steps"),
    ]  # fmt: skip
    how = (
        "Real trainings of a small GPT on the CPU, watched by megalens.monitor as it is by default with activations at every step. Each fault is put in at step "
        f"{AT}; it is found when the first alarm comes at that step or later. Healthy trainings differ in seed, size, schedule, warm-up, optimizer, betas, clipping and batch."
    )
    write_results("monitor_faults", "What the training monitor finds", rows, how=how, quick=options.quick)
    return 0


def _share(what: str, of: int, good: int, target: float | None) -> Row:
    value = 100 * good / max(1, of)
    low, high = _wilson(max(1, of), good)
    if target is None:
        return Row(what, value, "%", low, high, note=f"{good} of {of}")
    return Row(what, value, "%", low, high, f"≥ {target}", value >= target, f"{good} of {of}")


if __name__ == "__main__":
    sys.exit(main())
