"""Part of the demo's GPT, for trainings that cut it into stages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .model import GPT

__all__ = ["GPTPart"]


class GPTPart(nn.Module):
    """An equal share of the layers, with the embedding on the first part and the head on the last.

    Parameters
    ----------
    model : GPT
        Whose layers are taken, not copied.
    number, of : int
        Which part, counted from 0, of how many; the number of layers has to divide.
    """

    def __init__(self, model: GPT, number: int, of: int) -> None:
        super().__init__()
        each = len(model.blocks) // of
        self.blocks = nn.ModuleList(model.blocks[number * each : (number + 1) * each])
        self.first = nn.ModuleList([model.embedding, model.positions]) if number == 0 else None
        self.last = nn.Sequential(model.norm, model.head) if number == of - 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """Return hidden states ``[batch, sequence, hidden]``, of the last part logits; ``x`` are tokens ``[batch, sequence]`` for the first."""
        if self.first is not None:
            embedding, positions = self.first
            x = embedding(x) + positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return x if self.last is None else self.last(x)
