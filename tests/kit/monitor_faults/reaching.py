"""How faults reach into a training: at a place of its steps, and into the values of outputs, gradients and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .training import AT

__all__ = ["Change", "flip", "in_gradient", "in_output", "put", "reach"]

Change = Callable[[Tensor], Any]
"""Changes values in place."""


def reach(where: str, change: Callable[[Any], Any], first: int = AT, last: int | None = None) -> Any:
    """Change a training in each step from ``first`` to ``last``, at the place ``where``."""

    def reached(training: Any, here: str) -> None:
        if here == where and first <= training.step and (last is None or training.step <= last):
            with torch.no_grad():
                change(training)

    return reached


def in_output(module: str, change: Change, at: int = AT) -> Callable[[Any], None]:
    """Change what a module gives in one step."""

    def begin(training: Any) -> None:
        def spoil(_: nn.Module, given: Any, output: Tensor) -> Tensor:
            if training.step == at:
                output = output.clone()
                with torch.no_grad():
                    change(output)
            return output

        training.model.get_submodule(module).register_forward_hook(spoil)

    return begin


def in_gradient(name: str, change: Change, at: int = AT) -> Callable[[Any], None]:
    """Change the gradient of a parameter in one step."""

    def begin(training: Any) -> None:
        def spoil(gradient: Tensor) -> Tensor:
            gradient = gradient.clone()
            if training.step == at:
                change(gradient)
            return gradient

        training.weight(name).register_hook(spoil)

    return begin


def put(value: float) -> Change:
    """Put a value in the first place."""
    return lambda values: values.view(-1)[:1].fill_(value)


def flip(bit: int) -> Change:
    """Flip a bit of the first value."""
    return lambda values: values.data.view(-1)[:1].view(torch.int32).bitwise_xor_(1 << bit)
