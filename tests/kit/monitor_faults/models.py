"""Other models than the plain GPT: a classifier, experts, half precision, shared weights, dropout; and faults in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from megalens.demo.model import GPT, GPTConfig

from .reaching import reach
from .training import AT, SEQUENCE, Fault, Net, Training

__all__ = ["FAULTS", "Classifying", "Dropping", "Experts", "Half", "Tied"]

_READ, _CLASSES = 12, 6


class _Classifier(Net):
    """Tells from bytes what kind of byte comes next: a letter of one of three sorts, a space, a digit, or another."""

    kinds: Tensor

    def __init__(self, hidden: int) -> None:
        super().__init__()
        groups = (b"aeiouAEIOU", b"tnshrdl", b" \n", b"bcfgjkmpqvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"")
        kinds = torch.full((256,), _CLASSES - 1)
        for number, group in reversed([*enumerate(groups)]):
            kinds[list(group)] = number
        self.register_buffer("kinds", kinds, persistent=False)
        self.embedding = nn.Embedding(256, 16)
        self.fc1 = nn.Linear(16 * _READ, 2 * hidden)
        self.fc2 = nn.Linear(2 * hidden, hidden)
        self.head = nn.Linear(hidden, _CLASSES)
        self.labels_shuffled = False

    def forward(self, ids: Tensor) -> Tensor:
        """Return the loss."""
        hidden = functional.relu(self.fc1(self.embedding(ids[:, :_READ]).flatten(1)))
        labels = self.kinds[ids[:, _READ]]
        if self.labels_shuffled:
            labels = labels[torch.randperm(len(labels))]
        return functional.cross_entropy(self.head(functional.relu(self.fc2(hidden))), labels)


@dataclass
class Classifying(Training):
    """A classifier with two hidden layers."""

    batch: int = 128
    network = _Classifier


class _MoE(nn.Module):
    """Four experts, of which a router gives each token its two best."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, hidden))
            for _ in range(4)
        )
        self.uneven = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, S, H]`` to ``[B, S, H]``; what is uneven among the experts goes into the loss."""
        shares = self.router(x).softmax(-1)
        best = shares.topk(2).values[..., -1:]
        given = torch.where(shares >= best, shares, 0.0)
        used = (given > 0).float().mean((0, 1))
        self.uneven = 4 * (used * shares.mean((0, 1))).sum()
        mixed: Tensor = sum(
            (given[..., at : at + 1] * expert(x) for at, expert in enumerate(self.experts)),
            start=torch.zeros(()),
        )
        return mixed


class _ExpertsGPT(GPT):
    def loss(self, tokens: Tensor) -> Tensor:
        """Return the loss of text, and a hundredth of what is uneven among experts."""
        loss = super().loss(tokens)
        uneven: Tensor = sum((block.mlp.uneven for block in self.blocks), start=torch.zeros(()))
        return loss + 0.01 * uneven


@dataclass
class Experts(Training):
    """A GPT of two layers with experts."""

    layers: int = 2

    def made(self) -> Any:
        """Return the model."""
        model = _ExpertsGPT(GPTConfig(256, self.layers, self.hidden, 2, sequence=SEQUENCE))
        for block in model.blocks:
            block.mlp = _MoE(self.hidden)
        return model


@dataclass
class Half(Training):
    """A GPT whose MLPs compute in half precision, and whose loss is multiplied for it."""

    upscaled: float = 1.0

    def made(self) -> Any:
        """Return the model."""
        model = super().made()
        for block in model.blocks:
            block.mlp.fc1.register_forward_hook(
                lambda module, given, output: (output * self.upscaled).half().float() / self.upscaled
            )
        return model


@dataclass
class Tied(Training):
    """A GPT with one matrix for embedding and head."""

    def made(self) -> Any:
        """Return the model."""
        model = super().made()
        model.head.weight = model.embedding.weight
        return model


@dataclass
class Dropping(Training):
    """A GPT with dropout."""

    def made(self) -> Any:
        """Return the model."""
        model = super().made()
        for block in model.blocks:
            block.mlp = nn.Sequential(block.mlp, nn.Dropout(0.1))
            block.attention.projection = nn.Sequential(block.attention.projection, nn.Dropout(0.1))
        return model


def _weights(change: Any, last: int | None = AT) -> Any:
    return reach("weights", lambda training: change(training.model), last=last)


_data = partial(reach, "data")


def _to_one_expert(model: Any) -> None:
    # A direction that all tokens share decides for the first expert.
    model.blocks[0].mlp.router.weight.zero_()
    model.blocks[0].norm2.bias.fill_(1.0)
    model.blocks[0].mlp.router.weight[0] = 1.0


def _overflow_gradient(training: Training) -> None:
    weight = training.weight("blocks.1.mlp.fc1.weight")
    weight.register_hook(lambda gradient: (gradient * 2.0**40).half().float() / 2.0**40)


def _one_class(training: Any) -> None:
    training.model.kinds.zero_()


_EXPERT = "blocks.0.mlp.experts.1"

FAULTS: tuple[Fault, ...] = (
    Fault("overflow of half precision in activations", _data(lambda t: setattr(t, "upscaled", 2.0**20)), module="blocks.0.mlp.fc1", direction="forward", value=True, training=Half),
    Fault("overflow of half precision in a gradient", _data(_overflow_gradient), module="blocks.1.mlp.fc1", direction="reduction", value=True, training=Half),
    Fault("classifier: shuffled labels", _data(lambda t: setattr(t.model, "labels_shuffled", True)), training=partial(Classifying, rate=5e-3)),
    Fault("classifier: all labels one class", _data(_one_class), training=Classifying),
    Fault("classifier: NaN in a weight", _weights(lambda m: m.fc2.weight.view(-1)[:1].fill_(math.nan)), module="fc2", direction="update", value=True, training=Classifying),
    Fault("classifier: dead layer", _weights(lambda m: m.fc1.bias.fill_(-100.0), last=None), module="fc1", direction="update", value=True, training=Classifying),
    Fault("classifier: learning rate × 30", _data(lambda t: setattr(t, "scale", 30.0)), direction="optimizer update", training=Classifying),
    Fault("experts: all tokens to one expert", _weights(_to_one_expert), module="blocks.0.mlp.router blocks.0.norm2", direction="update", training=Experts),
    Fault("experts: a router 30 times as sharp", _weights(lambda m: m.blocks[1].mlp.router.weight.mul_(30)), module="blocks.1.mlp.router", direction="update", training=Experts),
    Fault("experts: an expert of zeros", _weights(lambda m: [p.zero_() for p in m.get_submodule(_EXPERT).parameters()]), module=_EXPERT, direction="update", value=True, training=Experts),
    Fault("experts: NaN in an expert", _weights(lambda m: m.get_submodule(_EXPERT)[0].weight.view(-1)[:1].fill_(math.nan)), module=_EXPERT, direction="update", value=True, training=Experts),
    Fault("experts: a router that forgot what it had learnt", _weights(lambda m: m.blocks[1].mlp.router.reset_parameters()), module="blocks.1.mlp.router", direction="update", training=Experts),
)  # fmt: skip
