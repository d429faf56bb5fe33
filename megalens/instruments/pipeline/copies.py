"""Sums the gradients of the two copies of the model that a pipeline has which runs both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from .chunk import StageChunk
from .executor import Executor
from .placement import Placement

__all__ = ["CopySum"]


class CopySum:
    """Gives each part of the model the gradients of all micro-batches: half of them passed its other copy.

    Gradients that a parameter had before the step, which are sums already, are put aside meanwhile.

    Parameters
    ----------
    layout, stage : Placement, int
        What the pipeline is like, and this rank's stage.
    chunks : mapping of int to StageChunk
        Its virtual stages.
    executor : Executor
        Exchanges them.
    pairs : sequence of (int, int)
        Virtual stages here, and those that are the same part, in the order in which both ends exchange them. Empty where there is one copy.
    """

    def __init__(
        self,
        layout: Placement,
        stage: int,
        chunks: Mapping[int, StageChunk],
        executor: Executor,
        pairs: Sequence[tuple[int, int]],
    ) -> None:
        self._layout, self._stage, self._chunks, self._executor, self._pairs = (
            layout,
            stage,
            chunks,
            executor,
            pairs,
        )
        self._before: list[tuple[nn.Parameter, Tensor]] = []

    def begin(self, training: bool) -> None:
        """Put aside what is there."""
        self._before.clear()
        if not training:
            return
        for own, _ in self._pairs:
            for parameter in self._parameters(own):
                if parameter.grad is not None:
                    self._before.append((parameter, parameter.grad))
                    parameter.grad = None

    def end(self, training: bool) -> None:
        """Add up what the step gave."""
        if not training or not self._pairs:
            return
        with torch.no_grad():
            self._add()
            for parameter, before in self._before:
                if parameter.grad is None:
                    parameter.grad = before
                else:
                    parameter.grad += before
        self._before.clear()

    def _add(self) -> None:
        own, other = self._pairs[0]
        if self._layout.stage_of(other) == self._stage:
            mine, theirs = _flat(self._parameters(own)), _flat(self._parameters(other))
            for each, others in zip(mine, theirs, strict=True):
                each += others
            self._put(own, mine)
            self._put(other, mine)
            return
        for own, other in self._pairs:
            mine = _flat(self._parameters(own))
            there = self._executor.exchange(self._layout.stage_of(other), own, other, mine)
            # In one order on both ends, so that both copies stay the same bit for bit.
            first, second = (mine, there) if own < other else (there, mine)
            self._put(own, [a + b for a, b in zip(first, second, strict=True)])

    def _parameters(self, virtual: int) -> list[nn.Parameter]:
        return [each for each in self._chunks[virtual].module.parameters() if each.requires_grad]

    def _put(self, virtual: int, flat: Sequence[Tensor]) -> None:
        parameters = self._parameters(virtual)
        for dtype, values in zip(_dtypes(parameters), flat, strict=True):
            at = 0
            for each in parameters:
                if each.dtype == dtype:
                    if each.grad is None:
                        each.grad = torch.zeros_like(each)
                    target = _local(each.grad)
                    target.copy_(values[at : at + target.numel()].view(target.shape))
                    at += target.numel()


def _dtypes(parameters: Sequence[nn.Parameter]) -> list[torch.dtype]:
    return sorted({each.dtype for each in parameters}, key=str)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _flat(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Return the gradients of one type in one tensor; zeros where there is none."""
    return [
        torch.cat(
            [
                (
                    _local(each.detach()).new_zeros(_local(each.detach()).numel())
                    if each.grad is None
                    else _local(each.grad).reshape(-1)
                )
                for each in parameters
                if each.dtype == dtype
            ]
        )
        for dtype in _dtypes(parameters)
    ]
