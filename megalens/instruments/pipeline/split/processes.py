"""A backward process: recomputes its stage with autograd, and runs the backward passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..stages.cut_batch import StepBatch
from ..stages.inbox import Key
from .layout import SplitLayout
from .worker import SplitWorker, takes_gradient

__all__ = ["BackwardProcess", "ForwardProcess"]

_Saved = tuple[Sequence[Any], Sequence[Any]]
"""Of a recomputed micro-batch the stage's inputs and outputs."""


class BackwardProcess(SplitWorker):
    """Does ``R0 … R(k-1) B0 Rk B1 …`` with k = ``ahead``: so many micro-batches are recomputed before their gradients come.

    Parameters
    ----------
    layout : SplitLayout
    *given
        As of every worker.
    ahead : int
        Micro-batches that are recomputed ahead.
    accumulated : callable
        Is called after every backward pass.
    """

    def __init__(self, layout: SplitLayout, *given: Any, ahead: int, accumulated: Callable[[], None]) -> None:
        super().__init__(layout, *given)
        here = self.place
        self._up = layout.rank_of("backward", here.stage - 1, here.replica, here.tensor)
        self._down = layout.rank_of("backward", here.stage + 1, here.replica, here.tensor)
        self._ahead, self._accumulated = min(ahead, self._count), accumulated
        self._saved: dict[int, _Saved] = {}

    def run(self, batch: StepBatch, call: int) -> list[Tensor]:
        """Do the recomputations and backward passes of a step."""
        losses: list[Tensor] = []
        self._saved.clear()
        expected: dict[int, list[Key]] = self._expected_activations()
        if self._down is not None:
            expected[self._down] = [("B", self.place.stage, number) for number in range(self._count)]
        self._mail.begin(expected)
        for number in range(self._ahead):
            self._recompute(batch, call, number, losses)
        for number in range(self._count):
            self._go_back(batch, number)
            if number + self._ahead < self._count:
                self._recompute(batch, call, number + self._ahead, losses)
        return losses

    def _recompute(self, batch: StepBatch, call: int, number: int, losses: list[Tensor]) -> None:
        inputs = self._inputs(batch, number)

        def work() -> None:
            with torch.enable_grad(), self._seeded(call, number):
                given = inputs
                if self._source is not None:
                    given = tuple(each.requires_grad_() if takes_gradient(each) else each for each in inputs)
                output = self._module(*given, **batch.kwargs[number])
                if self.place.last:
                    assert batch.loss is not None
                    loss = batch.loss(output, number)
                    losses.append(loss.detach())
                    outputs: Sequence[Any] = (loss,)
                else:
                    outputs = self._outputs(output, number)
                    taking = [each for each in outputs if takes_gradient(each)]
                    self._mail.knows(("B", self.place.stage), taking)
            self._saved[number] = given, outputs

        self._operate("R", number, work)
        self._mail.post_ahead()

    def _go_back(self, batch: StepBatch, number: int) -> None:
        gradients: Sequence[Tensor] = ()
        if self._down is not None:
            what = f"the gradient of micro-batch {number}"
            gradients = self._mail.take(("B", self.place.stage, number), self._down, what)

        def work() -> list[Tensor]:
            inputs, outputs = self._saved.pop(number)
            if self.place.last:
                pairs = [(outputs[0], torch.full_like(outputs[0], batch.scale))]
            else:
                taking = [each for each in outputs if takes_gradient(each)]
                pairs = list(zip(taking, gradients, strict=True))
            # A stage may have nothing that takes a gradient, or give what none depends on.
            pairs = [pair for pair in pairs if pair[0].requires_grad]
            if pairs:
                torch.autograd.backward([each for each, _ in pairs], [each for _, each in pairs])
            self._accumulated()
            if self._up is None:
                return []
            taken = [each for each in inputs if takes_gradient(each)]
            return [torch.zeros_like(each) if each.grad is None else each.grad for each in taken]

        found = self._operate("B", number, work)
        if self._up is not None:
            self._mail.give(("B", self.place.stage - 1, number), self._up, found)
        self._mail.post_ahead()


# A forward process: passes without autograd, whose outputs go to the next stage's processes.
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
