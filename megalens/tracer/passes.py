"""Forward and backward passes, as hooks on the modules whose call is one forward pass see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .graph_probes import GraphPass, passes_of
from .own_hooks import hook_after, hook_before

__all__ = [
    "IPassSink",
    "PassHooks",
    "after_backward",
    "hook_passes",
    "left_out_sentence",
    "when_backpropagated",
]


class IPassSink(Protocol):
    """What hears of forward passes."""

    def forward_begins(self, root: int, training: bool) -> None:
        """Note that a forward pass of one model chunk begins, in training mode or in that of evaluation."""

    def forward_ends(self, output: Any) -> None:
        """Note that it is over, with what it gave."""


def hook_passes(
    roots: Sequence[nn.Module], sink: IPassSink, inside: Callable[[], Iterable[Any]] = tuple
) -> list[Any]:
    """Put hooks on ``roots`` and return their handles; none stays where one cannot be put. While torch.compile traces through a hook, it does nothing and leaves no trace in the graph.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass.
    sink : IPassSink
        Told of the passes.
    inside : callable
        Puts on hooks that are to run inside of the pass, also on a root itself, and gives their handles one by one. So the end of the pass is hooked last.
    """

    def begin(index: int) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, args: Any) -> None:
            if not torch.compiler.is_compiling():
                sink.forward_begins(index, module.training)

        return hook

    def end(module: nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            sink.forward_ends(output)

    handles: list[Any] = []
    try:
        for index, root in enumerate(roots):
            if (graph := passes_of(root)) is not None:
                handles.append(graph.watch(partial(begin(index), root, ()), sink.forward_ends))
            handles.append(hook_before(root, begin(index), prepend=True))
        handles.extend(inside())
        for root in roots:
            handles.append(hook_after(root, end))
    except BaseException:
        for handle in handles:
            handle.remove()
        raise
    return handles


def when_backpropagated(output: Any, call: Callable[[], None]) -> None:
    """Have something called whenever a gradient comes back to a module's output: its first tensor that can have one is what its backward pass computes first."""
    if isinstance(output, GraphPass):
        output.backpropagated.append(call)
    elif torch.is_grad_enabled() and (tensor := _differentiable(output)) is not None:
        tensor.register_hook(lambda gradient: call())  # type: ignore[no-untyped-call]


def left_out_sentence(step: int, passes: int) -> str:
    """Return what the user is told of the first step with passes that are no training."""
    return (
        f"Step {step} had forward passes that are no training, without gradients (torch.no_grad, inference_mode, generate) or in evaluation mode and never backpropagated: {passes}. They are not traced, there and "
        'later; the status counts them. To trace such passes, put them into `with tracer.phase("eval"):` or `with tracer.phase("generate"):`.'
    )


def after_backward(call: Callable[[], None]) -> None:
    """Have something called once the backward pass that is going on is over, after what was queued before."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def _differentiable(output: Any) -> Tensor | None:
    """Return the first tensor of an output that can have a gradient."""
    if isinstance(output, Tensor):
        return output if output.requires_grad else None
    values: Iterable[Any] = ()
    if isinstance(output, (tuple, list)):
        values = output
    elif isinstance(output, Mapping):
        values = output.values()
    for value in values:
        tensor = _differentiable(value)
        if tensor is not None:
            return tensor
    return None


class PassHooks:
    """Tells of the passes inside of steps, while somebody wants to know.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass.
    tell : callable
        Takes the name of a method of instruments, and what it is told. Never raises.
    """

    def __init__(self, roots: Sequence[nn.Module], tell: Callable[..., None]) -> None:
        self._roots = tuple(roots)
        self._tell = tell
        self._handles: list[Any] = []
        self._chunk = 0
        self._told = False
        self._step = 0
        self.inside = False
        """Whether a step is going on."""
        self._evaluated = False
        """Whether passes in evaluation mode are backpropagated here; before one was, they are taken for no training."""
        self.phases = 0
        """Phases other than training that are going on. Without one, a pass without gradients is no training and is not told of."""

    def set(self, wanted: bool) -> None:
        """Put the hooks on, or take them off. Safe twice."""
        if wanted == bool(self._handles):
            return
        if wanted:
            self._handles = hook_passes(self._roots, self)
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @property
    def begun(self) -> bool:
        """Whether any step has begun so far."""
        return self._step > 0

    def begin(self) -> None:
        """Begin a step: backward passes of earlier ones are nobody's."""
        self._step += 1
        self.inside = True

    def forward_begins(self, root: int, training: bool) -> None:
        """Tell of a forward pass."""
        self._chunk = root
        self._told = self.inside and (
            self.phases > 0 or (torch.is_grad_enabled() and (training or self._evaluated))
        )
        if self._told:
            self._tell("forward_begins", root)

    def forward_ends(self, output: Any) -> None:
        """Tell that it is over, and wait for its backward pass."""
        if not self.inside:
            return
        step, chunk, told = self._step, self._chunk, self._told

        def arrived() -> None:
            if self.inside and step == self._step:
                self._evaluated = self._evaluated or not told
                if told:
                    self._tell("backward_begins", chunk)
                    after_backward(lambda: self._tell("backward_ends"))

        if told:
            self._tell("forward_ends", output)
        when_backpropagated(output, arrived)
