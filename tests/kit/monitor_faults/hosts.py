"""Trainings of other kinds, small and healthy: recurrent, regression, in turns, on frozen weights, with a line search, on data that change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .training import Net, Training

__all__ = ["Encoding", "InTurns", "Lengthening", "Mixing", "Probing", "Recurrent", "Regressing", "Searching"]

_READ = 12


class _Recurrent(Net):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 16)
        self.cell = nn.GRU(16, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 256)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.cell(self.embedding(ids[:, :-1]))
        return functional.cross_entropy(self.head(states).flatten(0, 1), ids[:, 1:].flatten())


@dataclass
class Recurrent(Training):
    """A gated recurrent network that reads text."""

    network = _Recurrent


class _Regression(Net):
    """Learns a smooth function of twelve numbers, with noise."""

    def __init__(self, hidden: int, norm: bool) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(_READ, hidden), nn.Linear(hidden, hidden)
        self.norm = nn.BatchNorm1d(hidden) if norm else nn.Identity()
        self.head = nn.Linear(hidden, 1)

    def forward(self, ids: Tensor) -> Tensor:
        x = ids[:, :_READ].float() / 64 - 1
        noise = ids[:, _READ].float() / 640 - 0.1
        y = (x[:, :3].sum(1) + x[:, 3] * x[:, 4]).sin() + noise
        hidden = functional.gelu(self.norm(self.fc1(x)))
        return functional.mse_loss(self.head(functional.gelu(self.fc2(hidden)))[:, 0], y)


@dataclass
class Regressing(Training):
    """A network of three layers that learns a function."""

    batch: int = 64
    norm: bool = False

    def made(self) -> Any:
        """Return the network."""
        return _Regression(self.hidden, self.norm)


class _Encoder(Net):
    """Gives back what it was given, through a narrow layer."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.into = nn.Sequential(nn.Linear(_READ, hidden), nn.Tanh(), nn.Linear(hidden, 4))
        self.back = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, _READ))

    def forward(self, ids: Tensor) -> Tensor:
        x = ids[:, :_READ].float() / 64 - 1
        return functional.mse_loss(self.back(self.into(x)), x)


@dataclass
class Encoding(Training):
    """An autoencoder."""

    batch: int = 64
    network = _Encoder


@dataclass
class Probing(Training):
    """A GPT of which only the last block and the head are trained."""

    def made(self) -> Any:
        """Return the model."""
        model = super().made()
        for name, weight in model.named_parameters():
            weight.requires_grad_(name.startswith((f"blocks.{self.layers - 1}.", "norm.", "head.")))
        return model


@dataclass
class InTurns(Training):
    """A GPT whose attention and whose other weights are trained in turns of ten steps."""

    def learn(self) -> Tensor:
        """Compute gradients, and drop those whose turn it is not."""
        loss = super().learn()
        for name, weight in self.model.named_parameters():
            if ("attention" in name) != (self.step // 10 % 2 == 0):
                weight.grad = None
        return loss


@dataclass
class Searching(Regressing):
    """A training by L-BFGS on all data at once, which asks for the loss several times a step."""

    batch: int = 256
    clip: float = 0.0

    def drawn(self) -> Tensor:
        """Return all data."""
        if self.last is None:
            self.last = super().drawn()
        found: Tensor = self.last
        return found

    def update(self) -> None:
        """Let it search."""

        def again() -> Tensor:
            self.optimizer.zero_grad()
            return self.learn()

        self.optimizer.step(again)


@dataclass
class Lengthening(Training):
    """Texts that become longer while it trains."""

    def drawn(self) -> Tensor:
        """Return a batch as long as it is the step's turn."""
        return super().drawn()[:, : min(24, 8 + 4 * (self.step // 60))]


@dataclass
class Mixing(Training):
    """Texts of which more and more are in capitals, up to a third."""

    def drawn(self) -> Tensor:
        """Return a batch with the step's part of capitals."""
        ids = super().drawn()
        other = torch.rand(len(ids)) < min(0.33, self.step / 1500)
        small = (ids >= 97) & (ids <= 122) & other[:, None]
        return torch.where(small, ids - 32, ids)
