"""Faults in the training of a small GPT by one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from .reaching import Change, flip, in_gradient, in_output, put, reach
from .training import AT, Fault, Training

__all__ = ["FAULTS"]

_VALUES: dict[str, Change] = {
    "NaN": put(math.nan),
    "infinity": put(math.inf),
    "flipped bit 30": flip(30),
    "zeros": lambda values: values.zero_(),
}
_once = partial(reach, last=AT)
_MODULES = ("blocks.0.mlp.fc1", "blocks.1.attention.qkv", "blocks.2.mlp.fc2")


def _value_faults() -> Iterator[Fault]:
    for module in _MODULES:
        name, found = f"{module}.weight", {"module": module, "value": True}
        for word, change in _VALUES.items():
            weight = _once("weights", lambda t, name=name, change=change: change(t.weight(name).data))
            yield Fault(
                f"{word} in the output of {module}",
                begin=in_output(module, change),
                direction="forward",
                **found,
            )
            yield Fault(
                f"{word} in the gradient of {module}",
                begin=in_gradient(name, change),
                direction="reduction",
                **found,
            )
            yield Fault(f"{word} in the weight of {module}", weight, direction="update", **found)


def _group(**settings: Any) -> Callable[[Training], None]:
    return lambda training: training.optimizer.param_groups[0].update(settings)


def _scaled(name: str, factor: float) -> Callable[[Training], Any]:
    return lambda training: training.weight(name).data.mul_(factor)


def _outlier(module: str) -> Callable[[Training], Any]:
    def outlie(training: Training) -> None:
        values = training.weight(f"{module}.weight").data
        values.view(-1)[0] = 16 * values.abs().max()

    return outlie


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
        Fault(f"a value of the weight of {module} sixteen times the largest", _once("weights", _outlier(module)), module=module, direction="update", value=True)
        for module in _MODULES
    ),
    *(
        Fault(f"beta {betas} from step {AT} on", reach("update", _group(betas=betas)), direction="optimizer")
        for betas in ((0.0, 0.95), (0.9, 0.5), (0.999, 0.9999), (0.5, 0.95))
    ),
    Fault("beta2 0.5 from the first step on", begin=_group(betas=(0.9, 0.5)), direction="optimizer", first=1),
    Fault("beta1 0 from the first step on", begin=_group(betas=(0.0, 0.95)), direction="optimizer", first=1),
    Fault("lost optimizer state", _once("update", lambda t: t.optimizer.state.clear()), direction="optimizer"),
    Fault("eps 0", begin=_group(eps=0.0), module="embedding", direction="update", first=1, value=True),
    Fault("resumed at the first step of the schedule", reach("data", _set("begun_again", AT)), direction="optimizer update"),
    Fault("no clipping", reach("data", _set("clip", 0.0)), begin=_tight, direction="optimizer"),
    Fault("learning rate × 10", reach("data", _set("scale", 10.0)), direction="optimizer"),
    Fault("learning rate × 100", reach("data", _set("scale", 100.0)), direction="optimizer"),
    Fault("weight decay 100", reach("update", _group(weight_decay=100.0)), direction="update"),
    Fault("gradient ascent", reach("data", _set("upside_down", True))),
    Fault("one batch again and again", _again),
    Fault("broken tokenizer", reach("data", lambda t: setattr(t, "ids", (t.ids * 7 + 13) % 256))),
    Fault("shuffled tokens", reach("data", _shuffled), training=partial(Training, rate=5e-3, batch=32)),
    Fault("one token only", reach("data", lambda t: t.ids.fill_(65))),
    Fault("half of the batch dropped", reach("data", lambda t: setattr(t, "ids", t.ids[: t.batch // 2]))),
    Fault("one of eight parts dropped", reach("data", lambda t: setattr(t, "ids", t.ids[: t.batch * 7 // 8]))),
    Fault("a frozen weight", _held, module="blocks.1.mlp.fc1", direction="update"),
    Fault("a weight that begins ten times too large", begin=_scaled(_FC1, 10), module="blocks.1.mlp.fc1", first=1),
    Fault("a weight that begins ten times too small", begin=_scaled(_FC1, 0.1), module="blocks.1.mlp.fc1", first=1),
    Fault("attention that sees one position", _once("weights", _scaled(_QKV, 30)), module="blocks.1.attention.qkv", direction="update"),
    Fault("a weight doubled at each step", reach("weights", _scaled(_FC1, 2)), module="blocks.1.mlp.fc1", direction="update"),
)  # fmt: skip
