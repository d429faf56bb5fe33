"""What a script holds of its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .own_hooks import hook_before

__all__ = ["StepHandle", "StepScope", "ForgottenStep"]

_PASSES = 10


# Whether a script has forgotten to say what a step is.
class ForgottenStep:
    """Counts forward passes with gradients until the first step begins or a phase is said, and tells the user when there are ten. Has no hook on the model after that.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass.
    warn : callable
        Takes a sentence for the user.
    """

    def __init__(self, roots: Sequence[nn.Module], warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._roots = tuple(roots)
        self._passes = 0
        self._handles: list[Any] = []

    def open(self) -> None:
        """Begin to count. Safe twice."""
        if not self._handles and self._passes < _PASSES:
            self._handles = [hook_before(root, self._called) for root in self._roots]

    def close(self) -> None:
        """Take the hooks off. Safe twice."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _called(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        self._passes += 1
        if self._passes == _PASSES:
            self.close()
            self._warn(
                f"{_PASSES} forward passes ran and no step has begun, so nothing is traced. Put `with tracer.step():` around each optimizer step, or call `tracer.wrap(optimizer)` once before the loop."
            )


class StepScope:
    """``with tracer.step():``; one object serves all steps."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin, self._end = begin, end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *error: object) -> None:
        self._end()


class StepHandle:
    """What :meth:`Tracer.wrap` gives: ``remove()`` takes it back. Safe twice."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove: Callable[[], None] | None = remove

    def remove(self) -> None:
        """Let optimizer steps end no more steps of the tracer."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()
