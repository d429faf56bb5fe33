"""When a backward pass is over, and the reductions over processes that it started with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...own_hooks import hook_after
from ...passes import after_backward
from .values import first_tensor, half_precision

__all__ = ["BackwardEnd"]

_WATCHED = 4


class BackwardEnd:
    """Calls back at the end of each backward pass through a model, while it is on.

    What is queued in the autograd engine runs after the pass. DDP and ``fully_shard`` finish the gradients that way, in the same queue; so the first thing queued here
    queues another, which comes after theirs.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass. The gradient of their output is the first thing in a backward pass, outside of all that checkpointing nests in it.
    parameters : sequence of torch.nn.Parameter
        Where none of the roots is called as a module, some of these tell of the pass instead.
    ended : callable
        Called after each pass; must not raise.
    computed : callable, optional
        Called when all gradients of a pass are computed, before DDP finishes the reduction that it began; must not raise. Not where no root was called.
    """

    def __init__(
        self,
        roots: Sequence[nn.Module],
        parameters: Sequence[nn.Parameter],
        ended: Callable[[], None],
        computed: Callable[[], None] | None = None,
    ) -> None:
        self._ended, self._computed = ended, computed
        self._queued = False
        self._by_root = False
        self.on = False
        self.half = False
        """Whether the model ran in half precision, which asks for a loss scale."""
        spread = [p for p in parameters if p.requires_grad]
        chosen = spread[:: max(1, len(spread) // _WATCHED)][:_WATCHED]
        self._handles: list[Any] = [hook_after(root, self._called) for root in roots]
        self._handles += [
            p.register_post_accumulate_grad_hook(self._accumulated)  # type: ignore[no-untyped-call]
            for p in chosen
        ]

    def begin(self, on: bool) -> None:
        """Follow the passes of a step, or do not."""
        self.on = on
        self._queued = self._by_root = self.half = False

    def close(self) -> None:
        """Take every hook off. Safe twice."""
        self.on = False
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _called(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not self.on or not torch.is_grad_enabled():
            return
        self.half = self.half or half_precision()
        for tensor in _tensors(output):
            if tensor.requires_grad:
                self._by_root = True
                tensor.register_hook(self._arrived)  # type: ignore[no-untyped-call]
                return

    def _arrived(self, gradient: Tensor) -> None:
        self._queue()

    def _accumulated(self, parameter: Tensor) -> None:
        if self.on and not self._by_root:
            self._queue()

    def _queue(self) -> None:
        if self.on and not self._queued:
            self._queued = True
            after_backward(self._first)

    def _first(self) -> None:
        # Queued when the first gradient arrived, so that it runs before what DDP queued with its last bucket.
        if self.on and self._by_root and self._computed is not None:
            self._computed()
        after_backward(self._second)

    def _second(self) -> None:
        self._queued = False
        if self.on:
            self._ended()


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, (tuple, list)):
        return [value for value in output if isinstance(value, Tensor)]
    if isinstance(output, dict) or hasattr(output, "items"):
        return [value for value in output.values() if isinstance(value, Tensor)]
    first = first_tensor(output)
    return [] if first is None else [first]
