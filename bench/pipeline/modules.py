"""Stages whose passes take as long as they are told, and the memory that they keep."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["KeptBytes", "TimedStage"]


class _Held:
    """A tensor that autograd keeps, counted for as long as it does."""

    def __init__(self, tensor: Tensor, kept: KeptBytes) -> None:
        self.tensor, self._kept = tensor, kept
        self._bytes = tensor.numel() * tensor.element_size()
        kept.add(self._bytes)

    def __del__(self) -> None:
        self._kept.add(-self._bytes)


class KeptBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that autograd keeps for backward passes, of tensors that are no parameters; ``peak`` is the most since it was set to 0."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        super().__init__(self._pack, self._unpack)

    def add(self, nbytes: int) -> None:
        self.now += nbytes
        self.peak = max(self.peak, self.now)

    def _pack(self, tensor: Tensor) -> Any:
        return tensor if isinstance(tensor, nn.Parameter) else _Held(tensor, self)

    @staticmethod
    def _unpack(held: Any) -> Tensor:
        tensor: Tensor = held.tensor if isinstance(held, _Held) else held
        return tensor


class _Work(torch.autograd.Function):
    """Sleeps in both passes: a device that computes leaves the processor alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_ms: float, backward_ms: float, kept: int) -> Tensor:
        time.sleep(forward_ms / 1e3)
        ctx.backward_ms = backward_ms
        if kept:
            ctx.save_for_backward(torch.empty(kept, dtype=torch.uint8))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        time.sleep(ctx.backward_ms / 1e3)
        return gradient, None, None, None


class TimedStage(nn.Module):
    """A part of a model whose forward pass, input gradient and weight gradients take given times, in ms, and which keeps given bytes between them."""

    def __init__(self, forward_ms: float, input_ms: float, weight_ms: float, kept: int) -> None:
        super().__init__()
        self.times = forward_ms, input_ms, weight_ms
        self.kept = kept
        self.scale = nn.Parameter(torch.ones(1))
        # As an embedding does on the first stage: what comes out of it has a gradient.
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        forward_ms, input_ms, weight_ms = self.times
        # The weights' gradients hang on a path of their own, as they do in a layer.
        scale = _Work.apply(self.scale, 0.0, weight_ms, 0)
        result: Tensor = _Work.apply(x + self.shift, forward_ms, input_ms, self.kept) * scale
        return result
