"""A forward process: passes without autograd, whose outputs go to the next stage's processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..stages.cut_batch import StepBatch
from .layout import SplitLayout
from .worker import SplitWorker

__all__ = ["ForwardProcess"]


class ForwardProcess(SplitWorker):
    """Does ``F0 F1 …``. What it holds of a micro-batch is gone once it is sent."""

    def __init__(self, layout: SplitLayout, *given: Any) -> None:
        super().__init__(layout, *given)
        here = self.place
        onward = layout.rank_of("forward", here.stage + 1, here.replica, here.tensor)
        self._sinks = [] if onward is None else [onward]
        self._sinks += layout.backward_of(here, here.stage + 1)

    def run(self, batch: StepBatch, call: int) -> list[Tensor]:
        """Do the forward passes of a step."""
        losses: list[Tensor] = []
        self._mail.begin(self._expected_activations())
        with torch.no_grad():
            for number in range(self._count):
                inputs = self._inputs(batch, number)

                def work(number: int = number, inputs: tuple[Any, ...] = inputs) -> Any:
                    with self._seeded(call, number):
                        output = self._module(*inputs, **batch.kwargs[number])
                        if self.place.last and batch.loss is not None:
                            losses.append(batch.loss(output, number).detach())
                    return output

                output = self._operate("F", number, work)
                if self._sinks:
                    outputs = self._outputs(output, number)
                    for rank in self._sinks:
                        self._mail.give(("F", self.place.stage + 1, number), rank, outputs)
                self._mail.post_ahead()
        return losses
