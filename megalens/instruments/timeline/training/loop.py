"""What a training loop does beside passes: optimizer steps, waiting for batches, saving."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import dataloader

from .rows import Span

__all__ = ["LoopHooks"]


class LoopHooks:
    """Stands before ``torch.save``, the iterators of data loaders, and the step of every optimizer.

    Parameters
    ----------
    keep : callable
        Takes a span. Must not raise.
    clock : callable
        Gives the time in ns.
    """

    def __init__(self, keep: Callable[[Span], None], clock: Callable[[], int]) -> None:
        self._keep, self._clock = keep, clock
        self._handles: list[Any] = []
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._optimizers: list[int] = []

    def begin(self) -> None:
        """Stand before them. Safe twice."""
        if self._handles:
            return
        self._handles = [
            register_optimizer_step_pre_hook(self._optimizer_begins),
            register_optimizer_step_post_hook(self._optimizer_ends),
        ]
        self._replace(dataloader._BaseDataLoaderIter, "__next__", "data")
        for place in (torch, torch.serialization):
            self._replace(place, "save", "checkpoint")

    def end(self) -> None:
        """Give all back. Safe twice."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        replaced, self._replaced = self._replaced, []
        for place, name, own, ours in reversed(replaced):
            if getattr(place, name) is ours:
                setattr(place, name, own)
        self._optimizers.clear()

    def _optimizer_begins(self, *_: Any) -> None:
        self._optimizers.append(self._clock())

    def _optimizer_ends(self, optimizer: Any, *_: Any) -> None:
        if self._optimizers:
            began, now = self._optimizers.pop(), self._clock()
            self._keep(Span("optimizer", began, now, type(optimizer).__name__, blocked=now - began))

    def _replace(self, place: Any, name: str, kind: str) -> None:
        own = getattr(place, name)

        @functools.wraps(own)
        def ours(*args: Any, **kwargs: Any) -> Any:
            began = self._clock()
            try:
                return own(*args, **kwargs)
            finally:
                now = self._clock()
                self._keep(Span(kind, began, now, blocked=now - began))

        setattr(place, name, ours)
        self._replaced.append((place, name, own, ours))
