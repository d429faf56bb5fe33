"""When a backward pass ends, after all that others queue for that moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...own_hooks import hook_after
from ...passes import after_backward, at_each_backward
from .values import half_precision

_WATCHED = 4


class BackwardEnd:
    """Calls back at the end of each backward pass through a model, while it is on.

    What is queued in the autograd engine runs after the pass. DDP and ``fully_shard`` finish the gradients
    that way, in the same queue; so the first thing queued here queues another, which comes after theirs.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass. The gradient of their output is the first thing in a backward
        pass, outside of all that checkpointing nests in it.
    parameters : sequence of torch.nn.Parameter
        Where a pass does not come through the output of a root, some of these detect it instead.
    began, ended : callable
        Called when a pass comes to a root's output, and after each pass; must not raise.
    computed : callable, optional
        Called when all gradients of a pass are computed, before DDP finishes the reduction that it began;
        must not raise. Not of a pass that comes through no root.
    """

    def __init__(
        self,
        roots: Sequence[nn.Module],
        parameters: Sequence[nn.Parameter],
        began: Callable[[], None],
        ended: Callable[[], None],
        computed: Callable[[], None] | None = None,
    ) -> None:
        self._began, self._ended, self._computed = began, ended, computed
        self._queued = False
        self._entered = False
        self.on = False
        self.half = False
        """Whether the model ran in half precision, which asks for a loss scale."""
        self.accumulated: list[Tensor] = []
        """Of the parameters that are looked at, those that the pass has given a gradient."""
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
        self._queued = self._entered = self.half = False

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
        at_each_backward(output, self._arrived)

    def _arrived(self) -> None:
        self._entered = True
        self._queue()

    def _accumulated(self, parameter: Tensor) -> None:
        if self.on:
            self._queue()
            self.accumulated.append(parameter)

    def _queue(self) -> None:
        if self.on and not self._queued:
            self._queued, self.accumulated = True, []
            if self._entered:
                self._began()
            after_backward(self._first)

    def _first(self) -> None:
        # Queued when the first gradient arrived, so that it runs before what DDP queued with its last bucket.
        if self.on and self._entered and self._computed is not None:
            self._computed()
        after_backward(self._second)

    def _second(self) -> None:
        self._queued = self._entered = False
        if self.on:
            self._ended()
