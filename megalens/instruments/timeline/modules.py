"""Layers and operations as spans, by hooks on modules and on the gradients that come back to them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import dataloader

from ...tracer.collectives import Replaced
from ...tracer.graph_probes import end_of
from ...tracer.instrument import Instrument
from ...tracer.own_hooks import hook_after, hook_before, remove_all, step_hook
from ...tracer.passes import when_backpropagated
from .noted_span import Span

_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)

_OPERATIONS = {
    "forward_one_chunk": "forward",
    "backward_one_chunk": "backward",
    "backward_weight_one_chunk": "wgrad",
}


class StageHooks:
    """Wraps the operations of ``torch.distributed.pipelining``'s stages while steps are timed, and notifies
    the instrument.

    Counting forward passes would find micro-batches only while each chunk has them in order; gradients of
    weights alone call no module at all.
    """

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._replaced = Replaced()

    def begin(self) -> None:
        """Wrap them, where the script uses them. Safe twice."""
        module = sys.modules.get("torch.distributed.pipelining.stage")
        if module is None or self._replaced:
            return
        # torch's two kinds of stage have it from one class.
        stage_class = module.PipelineStage.__mro__[1]
        for name, kind in _OPERATIONS.items():
            own = getattr(stage_class, name, None)
            if own is not None:
                self._replaced.put(stage_class, name, self._reporting(own, kind))

    def end(self) -> None:
        """Restore them. Safe twice."""
        self._replaced.end()

    def _reporting(self, own: Callable[..., Any], kind: str) -> Callable[..., Any]:
        @functools.wraps(own)
        def operation(stage: Any, number: int, *args: Any, **kwargs: Any) -> Any:
            # However stages are placed, each round over the ranks is a chunk of every rank.
            self._instrument.operation_begins(kind, stage.stage_index // stage.group_size, number)
            try:
                return own(stage, number, *args, **kwargs)
            finally:
                self._instrument.operation_ends()

        return operation


class LoopHooks:
    """Wraps ``torch.save``, the iterators of data loaders, and the step of every optimizer.

    ``keep`` takes a span and must not raise.
    """

    def __init__(self, keep: Callable[[Span], None], clock: Callable[[], int]) -> None:
        self._keep, self._clock = keep, clock
        self._handles: list[Any] = []
        self._replaced = Replaced()
        self._optimizers: list[int] = []

    def begin(self) -> None:
        """Wrap them. Safe twice."""
        if self._handles:
            return
        self._handles = [
            register_optimizer_step_pre_hook(step_hook(self._optimizer_begins)),
            register_optimizer_step_post_hook(step_hook(self._optimizer_ends)),
        ]
        self._replace(dataloader._BaseDataLoaderIter, "__next__", "data")
        for module in (torch, torch.serialization):
            self._replace(module, "save", "checkpoint")

    def end(self) -> None:
        """Restore all. Safe twice."""
        remove_all(self._handles)
        self._replaced.end()
        self._optimizers.clear()

    def _optimizer_begins(self, *_: Any) -> None:
        self._optimizers.append(self._clock())

    def _optimizer_ends(self, optimizer: Any, *_: Any) -> None:
        if self._optimizers:
            began, now = self._optimizers.pop(), self._clock()
            self._keep(Span("optimizer", began, now, type(optimizer).__name__, blocked=now - began))

    def _replace(self, owner: Any, name: str, kind: str) -> None:
        own = getattr(owner, name)

        @functools.wraps(own)
        def ours(*args: Any, **kwargs: Any) -> Any:
            began = self._clock()
            try:
                return own(*args, **kwargs)
            finally:
                now = self._clock()
                self._keep(Span(kind, began, now, blocked=now - began))

        self._replaced.put(owner, name, ours)


def layers_of(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of a model by path: members of its outermost module lists, and their siblings."""

    def inside(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
        for name, child in module.named_children():
            at = f"{path}{name}"
            if isinstance(child, _LISTS):
                yield from ((f"{at}.{key}", each) for key, each in child.named_children())
            elif any(isinstance(each, _LISTS) for each in child.modules()):
                yield from inside(child, f"{at}.")
            else:
                yield at, child

    yield from inside(getattr(root, "_orig_mod", root), "")


def operations_of(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that have no children, by path."""
    for path, module in getattr(root, "_orig_mod", root).named_modules():
        if path and next(module.children(), None) is None:
            yield path, module


class ModuleHooks:
    """Times the calls of modules, and their backward passes: from the output's gradient to the input's.

    A module whose input has no gradient, as an embedding, ends with the pass. Recomputation of activation
    checkpointing is a forward span inside the backward pass. ``keep`` takes kind, path, begin and end, and
    must not raise; ``on`` says whether the current step is timed.
    """

    def __init__(
        self,
        modules: Sequence[tuple[str, nn.Module]],
        keep: Callable[[str, str, int, int], None],
        clock: Callable[[], int],
    ) -> None:
        self._keep, self._clock = keep, clock
        self.on = False
        self._begun: list[tuple[str, int]] = []
        # Start of each running backward pass, by path.
        self._open: dict[str, int] = {}
        self._handles: list[Any] = []
        for path, module in modules:
            self._handles.append(hook_before(module, self._before(path), prepend=True))
            self._handles.append(hook_after(module, self._after(path)))
            for side, values, gradients in (
                ("input", self._begins, self._backward_ends),
                ("output", self._ends, self._backward_begins),
            ):
                if (end := end_of(module, side)) is not None:
                    self._handles.append(end.watch(_with(values, path), _with(gradients, path)))

    def close(self) -> None:
        """Remove the hooks. Safe twice."""
        remove_all(self._handles)
        self.step_ends()

    def step_ends(self) -> None:
        """Drop what has not ended."""
        self.on = False
        self._begun.clear()
        self._open.clear()

    @property
    def backward_began(self) -> int:
        """Return when the first of the current backward passes began; now where there is none."""
        # Of a device each reading of the clock is one more event.
        return min(self._open.values()) if self._open else self._clock()

    def backward_ends(self) -> None:
        """End the spans that have no gradient to end them."""
        now = self._clock()
        while self._open:
            path, began = self._open.popitem()
            self._keep("backward", path, began, now)

    def _before(self, path: str) -> Callable[[nn.Module, Any], None]:
        def hook(_: nn.Module, given: Any) -> None:
            if not self.on or torch.compiler.is_compiling():
                return
            when_backpropagated(given, lambda: self._backward_ends(path))
            self._begins(path)

        return hook

    def _after(self, path: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, given: Any, output: Any) -> None:
            if not self.on or torch.compiler.is_compiling():
                return
            self._ends(path)
            when_backpropagated(output, lambda: self._backward_begins(path))

        return hook

    def _begins(self, path: str) -> None:
        self._begun.append((path, self._clock()))

    def _ends(self, path: str) -> None:
        # What raised has left its beginning here.
        while self._begun:
            at, began = self._begun.pop()
            if at == path:
                self._keep("forward", path, began, self._clock())
                break

    def _backward_begins(self, path: str) -> None:
        self._open.setdefault(path, self._clock())

    def _backward_ends(self, path: str) -> None:
        began = self._open.pop(path, None)
        if began is not None:
            self._keep("backward", path, began, self._clock())


def _with(call: Callable[[str], None], path: str) -> Callable[[Any], None]:
    return lambda _: call(path)
