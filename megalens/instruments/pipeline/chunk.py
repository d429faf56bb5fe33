"""One virtual stage: its passes, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from .errors import PipelineError
from .plan_type import Operation, words_of

Gradients = Sequence[Tensor]
"""Of the tensors that take one."""


class StageChunk:
    """Runs the passes of one virtual stage, ``backward_passes`` of them in a step.

    torch's own stage knows how gradients of a stage are computed in one or two parts, and how DDP and FSDP
    are kept from reducing them before the last; which pass is the last, and what runs when, is decided here.
    """

    def __init__(self, stage: Any, virtual: int, first: bool, last: bool, backward_passes: int) -> None:
        self.stage, self.virtual, self.first, self.last = stage, virtual, first, last
        self._passes = backward_passes
        self._left = 0
        # By micro-batch: outputs, tensors among the inputs, how many of these came from the stage before.
        self._saved: dict[int, tuple[tuple[Any, ...], list[Any], int]] = {}
        self._losses: dict[int, Tensor] = {}
        self._parts: dict[int, tuple[tuple[Any, ...], Any, list[Any], Any]] = {}
        self.outputs: dict[int, Any] = {}
        """Outputs of the last virtual stage by micro-batch, without graph."""

    @property
    def module(self) -> nn.Module:
        return self.stage.submod  # type: ignore[no-any-return]

    @property
    def reduces(self) -> bool:
        """Whether its passes communicate with ranks of the same stage, which then need one order."""
        module = self.module
        return isinstance(module, (DistributedDataParallel, FSDPModule)) or any(
            isinstance(each, DTensor) for each in module.parameters()
        )

    def begin(self, split: bool) -> None:
        """Begin a step; with ``split`` there are backward passes in two parts."""
        self.clear()
        self._left = self._passes
        if split and isinstance(self.module, FSDPModule):
            # Gradients of weights are looked for by the parameters of the forward pass.
            self.module.set_reshard_after_forward(False)

    def clear(self) -> None:
        """Drop the step's data."""
        for each in (self._saved, self._losses, self._parts, self.outputs):
            each.clear()

    def forward(
        self,
        number: int,
        inputs: tuple[Any, ...],
        kwargs: dict[str, Any],
        loss: Callable[[Any], Tensor] | None,
        keep_output: bool,
    ) -> tuple[Any, ...]:
        """Run a forward pass and return its outputs, with their graph.

        On the last virtual stage ``loss`` computes the loss of the output; ``keep_output`` retains that for
        after the step.
        """
        output = self.stage.forward_maybe_with_nosync(*inputs, **kwargs)
        outputs = tuple(output) if isinstance(output, (tuple, list)) else (output,)
        if self.last:
            if loss is not None:
                value = loss(output)
                self._losses[number] = value.detach()
                if keep_output:
                    self.outputs[number] = _detached(output)
                outputs = (value,)
            elif keep_output:
                self.outputs[number] = output
        else:
            self._check_outputs(number, outputs)
        if torch.is_grad_enabled():
            # A module that detaches its outputs in place cannot do so with a view.
            outputs = tuple(
                each.clone() if isinstance(each, Tensor) and each._is_view() else each for each in outputs
            )
            tensors = [each for each in tree_leaves((inputs, kwargs)) if isinstance(each, Tensor)]
            self._saved[number] = outputs, tensors, len(inputs)
        return outputs

    def loss(self, number: int) -> Tensor | None:
        """Return the loss of a micro-batch, without its graph; None where there is none."""
        return self._losses.get(number)

    def backward(self, number: int, gradients: Gradients) -> Gradients:
        """Run a complete backward pass and return the gradients of the input.

        ``gradients`` are of each output that has a graph.
        """
        outputs, inputs, count = self._saved.pop(number)
        self._left -= 1
        if not _has_graph(outputs):
            self._reduce(True)
            return _taking(inputs[:count], ())
        args = {"stage_output": outputs, "output_grads": _spread(outputs, gradients), "input_values": inputs}
        found, _ = self.stage.backward_maybe_with_nosync("full", args, last_backward=self._left == 0)
        self._reduce(False)
        return _taking(inputs[:count], found)

    def backward_input(self, number: int, gradients: Gradients) -> Gradients:
        """Compute the gradients of the input, and retain what those of the weights need."""
        outputs, inputs, count = self._saved.pop(number)
        if not any(each.requires_grad for each in inputs) or not _has_graph(outputs):
            # Without them there are only those of the weights.
            self._parts[number] = outputs, gradients, inputs, None
            return _taking(inputs[:count], ())
        args = {"stage_output": outputs, "output_grads": _spread(outputs, gradients), "input_values": inputs}
        found, groups = self.stage.backward_maybe_with_nosync("input", args, last_backward=False)
        self._parts[number] = outputs, None, inputs, groups
        return _taking(inputs[:count], found)

    def backward_weight(self, number: int) -> None:
        outputs, gradients, inputs, groups = self._parts.pop(number)
        self._left -= 1
        if groups is not None:
            args = {"stage_output": outputs, "param_groups": groups}
            self.stage.backward_maybe_with_nosync("weight", args, last_backward=False)
        elif _has_graph(outputs):
            args = {
                "stage_output": outputs,
                "output_grads": _spread(outputs, gradients),
                "input_values": inputs,
            }
            self.stage.backward_maybe_with_nosync("full", args, last_backward=self._left == 0)
            self._reduce(False)
            return
        self._reduce(True)

    def _reduce(self, by_hand: bool) -> None:
        """Reduce the gradients after the last backward pass; ``by_hand``: none of DDP's hooks ran in it."""
        if self._left:
            return
        module = self.module
        if isinstance(module, FSDPModule):
            self.stage.perform_reduce_grad(1)
        elif by_hand and isinstance(module, DistributedDataParallel):
            # DDP's hooks did not see these gradients. A backward pass that adds zeros has it reduce them.
            views = [each.view_as(each) for each in module.parameters() if each.requires_grad]
            module.reducer.prepare_for_backward(views)
            torch.autograd.backward(views, [each.new_zeros(()).expand_as(each) for each in views])

    def _check_outputs(self, number: int, outputs: tuple[Any, ...]) -> None:
        for each in outputs:
            if not isinstance(each, Tensor) or isinstance(each, DTensor):
                what = Operation("F", self.virtual, number)
                raise PipelineError(
                    f"{what} ({words_of(what)}) gave a {type(each).__name__}: between stages only plain "
                    "tensors, or a tuple of them, can be sent. "
                    "Of a DTensor have the layer give the local one (use_local_output=True).",
                    code="shape",
                    operation=str(what),
                    micro_batch=number,
                )


def _has_graph(outputs: Sequence[Any]) -> bool:
    return any(isinstance(each, Tensor) and each.requires_grad for each in outputs)


def _spread(outputs: Sequence[Any], gradients: Gradients) -> tuple[Tensor | None, ...]:
    """Return a gradient, or None, for each output."""
    given = iter(gradients)
    return tuple(next(given) if isinstance(each, Tensor) and each.requires_grad else None for each in outputs)


def _taking(inputs: Sequence[Tensor], found: Sequence[Tensor | None]) -> Gradients:
    """Return the gradients of those inputs that take one: zeros where an input was not used."""
    given = (*found, *(None for _ in inputs[len(found) :]))
    return [
        torch.zeros_like(each) if gradient is None else gradient
        for each, gradient in zip(inputs, given, strict=False)
        if each.requires_grad
    ]


def _detached(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.detach()
    if isinstance(output, (tuple, list)):
        return type(output)(_detached(each) for each in output)
    return output
