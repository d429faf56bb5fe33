"""A small training that faults reach into, watched by ``megalens.monitor``, and the peer's two rules beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.demo.train import Windows, load_corpus
from megalens.instruments.monitor.rule import Alarm
from megalens.instruments.monitor.training_monitor import TrainerMonRules
from megalens.protocol import StepReadings

__all__ = ["AFTER", "AT", "SEQUENCE", "Fault", "Net", "PeerRules", "Training"]

AT, AFTER, SEQUENCE = 80, 40, 24


class PeerRules(TrainerMonRules):
    """TrainerMon's two rules, with the thresholds of its documentation, on the same rows; the alarms of ours stay as they are."""

    def __init__(self) -> None:
        super().__init__(
            [{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}, {"rule_name": "AnomalyNan"}]
        )
        self.steps: set[int] = set()
        """Those in which they report anything."""

    def __call__(self, step: StepReadings, before: Sequence[StepReadings]) -> list[Alarm]:
        """Judge a step."""
        if super().__call__(step, before):
            self.steps.add(step.step)
        return []


class Net(nn.Module):
    """A model that gives its loss."""

    def loss(self, ids: Tensor) -> Tensor:
        """Return the loss of a batch."""
        found: Tensor = self(ids)
        return found


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
    optimized: Callable[[Any, float], Any] | None = None
    """Takes the parameters and the rate, and makes another optimizer."""
    resumed: bool = False
    """Whether it is stopped half way, and goes on from its checkpoint with a monitor that is new."""
    parts: int = 1
    """Micro-batches of a step."""
    activation: int = 1
    step: int = 0
    scale: float = 1.0
    """By which the learning rate is multiplied."""
    begun_again: int = 0
    """Step at which the schedule began again."""
    upside_down: bool = False
    """Whether it climbs instead of descending."""
    last: Any = None
    """What a fault keeps from step to step."""
    peer: PeerRules = field(default_factory=PeerRules)
    model: Any = field(init=False)
    network: ClassVar[Callable[[int], Net] | None] = None
    """Takes the hidden size, and makes another model than a GPT."""

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        self.model = self.made()
        weights = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer = (
            self.optimized(weights, self.rate)
            if self.optimized is not None
            else torch.optim.SGD(weights, self.rate, momentum=0.9)
            if self.sgd
            else torch.optim.AdamW(weights, self.rate, betas=self.betas, weight_decay=0.1)
        )
        self.windows = Windows(load_corpus().train, SEQUENCE - 1, self.seed)

    def made(self) -> Any:
        """Return the model: a module with ``loss(ids)``."""
        if self.network is not None:
            return type(self).network(self.hidden)
        return GPT(GPTConfig(256, self.layers, self.hidden, 2, sequence=SEQUENCE))

    def learn(self) -> Tensor:
        """Compute the gradients of the step's batch; return its loss."""
        total = torch.zeros(())
        for ids in self.ids.chunk(self.parts):
            loss = self.model.loss(ids) / self.parts
            (-loss if self.upside_down else loss).backward()
            total += loss.detach()
        return total

    def drawn(self) -> Tensor:
        """Return the step's batch."""
        return self.windows.random(self.batch)

    def update(self) -> None:
        """Let the optimizer make its step."""
        self.optimizer.step()

    def weight(self, name: str) -> nn.Parameter:
        """Return a parameter by name."""
        return dict(self.model.named_parameters())[name]

    def rate_now(self) -> float:
        """Return the learning rate of the step."""
        at = self.step - self.begun_again
        if at <= self.warmup:
            share = at / self.warmup
        elif self.schedule == "restart":
            share = 0.51 + 0.49 * math.cos(math.pi * ((at - self.warmup) % 200) / 200)
        elif self.schedule == "steps":
            share = 0.1 ** (3 * at // (self.steps + 1))
        elif self.schedule == "constant":
            share = 1.0
        elif self.schedule == "cooldown":
            share = min(1.0, 5 * (self.steps + 1 - at) / self.steps)
        elif self.schedule == "triangles":
            share = 0.2 + 0.8 * abs((at / 60) % 2 - 1)
        else:
            share = 0.5 * (1 + math.cos(math.pi * (at - self.warmup) / max(1, self.steps - self.warmup + 1)))
        return self.rate * share * self.scale

    def run(self, fault: Fault | None = None) -> Iterator[list[Any]]:
        """Train; give the alarms that each step has raised so far."""
        if fault is not None:
            fault.begin(self)
        reach = fault.reach if fault is not None else lambda training, where: None
        half = self.steps // 2 if self.resumed else self.steps
        earlier: list[Any] = []
        for earlier in self._watched(range(1, half + 1), reach):
            yield earlier
        if self.resumed:
            kept = self.model.state_dict(), self.optimizer.state_dict()
            seed, self.seed = self.seed, self.seed + 1000
            self.__post_init__()
            self.seed = seed
            self.model.load_state_dict(kept[0])
            self.optimizer.load_state_dict(kept[1])
            for alarms in self._watched(range(half + 1, self.steps + 1), reach):
                yield earlier + alarms

    def _watched(self, steps: range, reach: Callable[[Training, str], Any]) -> Iterator[list[Any]]:
        monitor = megalens.monitor(
            self.model, self.optimizer, hub=None, activation=self.activation, rules=[self.peer]
        )
        with monitor:
            for self.step in steps:
                for group in self.optimizer.param_groups:
                    group["lr"] = self.rate_now()
                self.ids = self.drawn()
                reach(self, "data")
                with monitor.step():
                    self.optimizer.zero_grad()
                    loss = self.learn()
                    if self.clip:
                        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                    reach(self, "update")
                    self.update()
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
        Where the first anomaly should be, as words of which one is right; empty where it is of no one module or part.
    first : int
        The step at which it comes.
    value : bool
        Whether it is a wrong value, to be found in its own step or the next.
    training : callable
        Makes the training that it is put into.
    """

    name: str
    reach: Callable[[Training, str], Any] = lambda training, where: None
    begin: Callable[[Training], Any] = lambda training: None
    module: str = ""
    direction: str = ""
    first: int = AT
    value: bool = False
    training: Callable[[], Training] = Training
    rank: int = -1
    """Of whom the first anomaly should be; -1 where it is of no one rank."""

    def is_at(self, alarm: Any) -> bool:
        """Return whether an alarm names where it was put."""
        return (
            (not self.module or any(alarm.name.startswith(each) for each in self.module.split()))
            and (not self.direction or alarm.direction in self.direction.split())
            and self.rank in (-1, alarm.rank)
        )
