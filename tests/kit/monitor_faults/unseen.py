"""Kinds of faults on models and seeds that no threshold was chosen on, each a small change that somebody makes by mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .models import Classifying, Dropping, Experts, Tied
from .reaching import reach
from .training import AFTER, AT, Fault, Net, Training

__all__ = ["CHOSEN", "JUDGED", "Seeing", "faults_in"]


class _Vision(Net):
    """Tells stripes of four directions in noise, by two convolutions, each with a batch norm that takes its bias away."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList((nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)))
        self.norms = nn.ModuleList((nn.BatchNorm2d(8), nn.BatchNorm2d(16)))
        self.head = nn.Linear(16, 4)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the cross entropy of pictures that the ids choose."""
        labels = ids[:, 0] % 4
        at = torch.arange(8.0)
        phase = ids[:, 1, None, None].float()
        across, down = at[None, :, None] + phase, at[None, None, :] + phase
        stripes = torch.stack((across + 0 * down, 0 * across + down, across + down, across - down), 1)
        pictures = (stripes[torch.arange(len(ids)), labels] * 1.6).sin()
        noise = (ids[:, 2:18].float() / 128 - 1).repeat(1, 4).reshape(len(ids), 8, 8)
        x = (pictures + noise)[:, None]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = functional.relu(norm(conv(x)))
        return functional.cross_entropy(self.head(x.mean((2, 3))), labels)


@dataclass
class Seeing(Training):
    """A small convolutional network."""

    batch: int = 64
    network = _Vision


def _matrices(model: nn.Module) -> list[str]:
    """Return the names of weights with at least two axes, without embeddings and head."""
    return [
        name
        for name, weight in model.named_parameters()
        if weight.ndim > 1 and not any(part in name for part in ("embed", "position", "head", "router"))
    ]


def _inner(model: nn.Module) -> str:
    names = _matrices(model)
    return names[len(names) // 2]


def _head(model: nn.Module) -> str:
    return next(name for name, weight in reversed([*model.named_parameters()]) if weight.ndim > 1)


def _norm(model: nn.Module) -> str:
    named = [name for name, weight in model.named_parameters() if "norm" in name and name.endswith("weight")]
    return named[len(named) // 2] if named else _inner(model)


Change = Callable[[Training, str], Any]
"""Takes the training and the name of the tensor."""


def _scaled(factor: float) -> Change:
    return lambda training, name: training.weight(name).mul_(factor)


def _gradient(change: Callable[[Tensor], Any], *, every: bool = False) -> Change:
    def put(training: Training, name: str) -> None:
        for own, weight in training.model.named_parameters():
            if (every or own == name) and weight.grad is not None:
                change(weight.grad)

    return put


def _frozen(training: Training, name: str) -> None:
    training.weight(name).requires_grad_(False)


def _detached(training: Training, name: str) -> None:
    module = training.model.get_submodule(name.rpartition(".")[0])
    if training.last is None:
        training.last = module.register_forward_hook(lambda m, given, output: output.detach())


def _ended(training: Training, name: str) -> None:
    """Let no gradient pass the module's input."""
    module = training.model.get_submodule(name.rpartition(".")[0])
    if training.last is None:
        training.last = module.register_forward_pre_hook(lambda m, given: tuple(x.detach() for x in given))


def _other(model: nn.Module, name: str) -> str:
    """Return the name of another tensor, of as many values where there is one."""
    sizes = {own: weight.numel() for own, weight in model.named_parameters()}
    others = [own for own in sizes if own != name]
    return next((own for own in others if sizes[own] == sizes[name]), others[0])


def _swapped(training: Training, name: str) -> None:
    own, other = training.weight(name), training.weight(_other(training.model, name))
    for key in ("exp_avg", "exp_avg_sq"):
        one, two = training.optimizer.state[own][key], training.optimizer.state[other][key]
        n = min(one.numel(), two.numel())
        first = one.flatten()[:n].clone()
        one.view(-1)[:n] = two.flatten()[:n]
        two.view(-1)[:n] = first


def _shuffled(training: Training, name: str) -> None:
    values = training.optimizer.state[training.weight(name)]
    for key in ("exp_avg", "exp_avg_sq"):
        flat = values[key].view(-1)
        flat.copy_(flat[torch.randperm(len(flat))])


def _recounted(training: Training, name: str) -> None:
    for values in training.optimizer.state.values():
        values["step"].zero_()


def _rate(factor: float) -> Change:
    return lambda training, name: setattr(training, "scale", factor)


def _rate_for(factor: float, steps: int) -> Change:
    return lambda training, name: setattr(training, "scale", factor if training.step < AT + steps else 1.0)


def _twice(training: Training, where: str) -> None:
    if where == "data":
        if training.step == AT:
            training.ids = training.last
        training.last = training.ids


def _ten(training: Training, where: str) -> None:
    if where == "data":
        kept = training.last = training.last or []
        if training.step >= AT:
            training.ids = kept[(training.step - AT) % 10]
        else:
            kept.append(training.ids)
            del kept[:-10]


_KINDS: tuple[tuple[str, str, str, Any, int | None, Any], ...] = (
    ("a weight × 1.03 a step", "weights", "update", _scaled(1.03), None, _inner),
    ("a weight × 1.02 a step", "weights", "update", _scaled(1.02), None, _inner),
    ("a norm's weight × 1.03 a step", "weights", "update", _scaled(1.03), None, _norm),
    ("the head × 1.02 a step", "weights", "update", _scaled(1.02), None, _head),
    ("a frozen layer", "data", "reduction backward update", _frozen, AT, _inner),
    ("a detached module", "data", "reduction backward update", _detached, None, _inner),
    ("gradients that end at a layer", "data", "", _ended, None, _inner),
    ("a gradient zeroed once", "update", "reduction optimizer", _gradient(lambda g: g.zero_()), AT, _inner),
    ("a gradient made NaN once", "update", "reduction optimizer update", _gradient(lambda g: g.view(-1)[:1].fill_(math.nan)), AT, _inner),
    ("all gradients zeroed once", "update", "reduction optimizer", _gradient(lambda g: g.zero_(), every=True), AT, None),
    ("learning rate × 5 late", "data", "optimizer update", _rate(5.0), None, None),
    ("learning rate × 10 late", "data", "optimizer update", _rate(10.0), None, None),
    ("learning rate × 3.5 for 20 steps", "data", "optimizer update", _rate_for(3.5, 20), None, None),
    ("learning rate 0 for good", "data", "optimizer update", _rate(0.0), None, None),
    ("optimizer state swapped", "update", "optimizer update", _swapped, AT, _inner),
    ("optimizer state shuffled", "update", "optimizer update", _shuffled, AT, _inner),
    ("optimizer steps counted anew", "update", "optimizer update", _recounted, AT, None),
)  # fmt: skip


def _of(change: Change, pick: Callable[[nn.Module], str]) -> Callable[[Training], Any]:
    return lambda training: change(training, pick(training.model))


def faults_in(host: Callable[..., Training], word: str) -> Iterator[Fault]:
    """Give every kind of fault in one training."""
    model = host().made()
    for name, where, direction, change, last, pick in _KINDS:
        chosen = (pick or _inner)(model)
        # Only a rate that is far down its schedule is multiplied late.
        late = {"steps": AT + 30} if name.endswith("late") else {"steps": AT + AFTER}
        module = "" if pick is None or "end at" in name else chosen.rpartition(".")[0]
        if name.endswith("swapped"):
            module = f"{module} {_other(model, chosen).rpartition('.')[0]}"
        yield Fault(
            f"{word}: {name}",
            reach(where, _of(change, pick or _inner), last=last),
            module=module,
            direction=direction,
            training=partial(host, **late),
        )
    for name, again in (("the same batch twice", _twice), ("the same ten batches again and again", _ten)):
        yield Fault(f"{word}: {name}", again, training=host)


def _named(*hosts: tuple[str, Callable[..., Training]]) -> tuple[Fault, ...]:
    return tuple(fault for word, host in hosts for fault in faults_in(host, word))


CHOSEN = _named(
    ("GPT", partial(Training, seed=101)),
    ("classifier", partial(Classifying, seed=102)),
)
"""Those on which thresholds may be chosen."""
JUDGED = _named(
    ("wider GPT", partial(Training, seed=201, hidden=48, layers=2, betas=(0.9, 0.999), clip=0.0)),
    ("experts", partial(Experts, seed=202)),
    ("tied", partial(Tied, seed=203)),
    ("dropout", partial(Dropping, seed=204, batch=8)),
    ("vision", partial(Seeing, seed=205)),
)
"""Those by which they are judged."""
