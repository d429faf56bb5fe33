"""Forward and backward passes as hooks on the model see them, and to which micro-batch each belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from .graph_probes import GraphPass, passes_of
from .own_hooks import hook_after, hook_before, remove_all

TRAINING = "train"
OUTSIDE = "outside"
"""Phase of what runs between steps, or inside of them without gradients: it is neither traced nor perturbed.
"""
_DEPTH = 6
"""How deep an output is looked into; by hand."""


class Unproven:
    """A forward pass in evaluation mode, of which only its backward pass says that it is a micro-batch.

    ``number`` is that of the micro-batch as it would be were no other pass between; once it is proven, as it
    is. ``rows`` is what it gave, for whoever waits, and ``calls`` how often what was called in it.
    """

    __slots__ = ("calls", "number", "rows")

    def __init__(self, number: int, calls: dict[Any, int] | None = None) -> None:
        self.number = number
        self.rows: Any = None
        self.calls: dict[Any, int] = {} if calls is None else calls


class PassState(NamedTuple):
    """Where a step was when a phase inside of it began."""

    phase: str
    forward: int
    backward: int
    counts: dict[int, int]


class MicroBatches:
    """Counts forward passes, each model chunk by itself, and knows to which of them a backward pass belongs.

    A pipeline interleaves forward and backward passes of several micro-batches. The gradient of a forward
    pass's own output is the first thing that its backward pass computes, so a hook on each tensor of that
    output tells which micro-batch everything after it belongs to, what activation checkpointing computes
    again included.

    What is computed without gradients from the model's own call down is no training (a teacher's pass, old
    probabilities, a sample of text), unless a phase was set: it is no micro-batch, and while it runs the
    phase is :data:`OUTSIDE`. What is computed with gradients in evaluation mode is a micro-batch from its
    backward pass on.

    Attributes
    ----------
    step : int
        Step that began last.
    phase : str
        ``train``, ``eval`` or ``generate``; :data:`OUTSIDE` between steps.
    in_forward, in_backward : bool
        Where the model is.
    follows_backward : bool
        Whether anybody wants to know of backward passes; without that no hook is put on an output.
    left_out : int
        Passes of this step that were no training, so far.
    unproven : Unproven or None
        The pass that the model is in, where it is one of those.
    """

    def __init__(self) -> None:
        self.step = 0
        self.phase = TRAINING
        self.in_forward = False
        self.in_backward = False
        self.follows_backward = False
        self.left_out = 0
        self.unproven: Unproven | None = None
        self._leaving_out = False
        self._root = 0
        self._forward = -1
        self._backward = -1
        self._counts: dict[int, int] = {}

    @property
    def micro_batch(self) -> int:
        """Number of the micro-batch that is computed now, from 0; −1 before the first of a step."""
        return self._backward if self.in_backward and not self.in_forward else self._forward

    @property
    def micro_batches(self) -> int:
        """Micro-batches of this step or phase so far, of the chunk that had most."""
        return 1 + max(self._counts.values(), default=-1)

    def begin(self, step: int, phase: str) -> None:
        """Start a step or a phase, and count from 0."""
        if phase == TRAINING:
            self.left_out = 0
        self._leaving_out, self.unproven = False, None
        self.step, self.phase = step, phase
        self.in_forward = self.in_backward = False
        self._forward = self._backward = -1
        self._counts = {}

    def save(self) -> PassState:
        """Return what :meth:`restore` takes after a phase inside of a step."""
        self._go_on()
        return PassState(self.phase, self._forward, self._backward, self._counts)

    def restore(self, saved: PassState) -> None:
        self.phase, self._forward, self._backward, self._counts = saved
        self.in_forward = self.in_backward = False

    def forward_begins(self, root: int, training: bool) -> None:
        """Count a forward pass of one model chunk."""
        # What raised has not ended.
        self._go_on()
        if self.phase == TRAINING and not torch.is_grad_enabled():
            self.left_out += 1
            self._leaving_out, self.phase = True, OUTSIDE
            self.in_forward = False
            return
        self._forward = self._counts.get(root, -1) + 1
        self._root = root
        if self.phase == TRAINING and not training:
            self.left_out += 1
            self.unproven = Unproven(self._forward)
        else:
            self._counts[root] = self._forward
        self.in_forward = True

    def forward_ends(self, output: Any) -> None:
        """Wait for the backward pass of the forward pass that ends."""
        self.in_forward = False
        unproven, self.unproven = self.unproven, None
        if self._leaving_out:
            self._go_on()
        elif self.follows_backward or unproven is not None:
            at_each_backward(output, self._entering(self._root, self._forward, self._counts, unproven))

    def prove(self, unproven: Unproven, renumbered: bool) -> None:
        """Accept a pass, whose backward pass has begun, as a micro-batch; its number may have changed."""

    def _go_on(self) -> None:
        """Go back from a pass that was left out, or that raised."""
        self.unproven = None
        if self._leaving_out:
            self._leaving_out, self.phase = False, TRAINING

    def _entering(
        self, root: int, number: int, counts: dict[int, int], unproven: Unproven | None
    ) -> Callable[[], None]:
        waiting = unproven

        def enter() -> None:
            nonlocal waiting, number
            # Of another step or phase than the one that counts now: nothing of it is traced.
            if counts is not self._counts:
                return
            first, waiting = waiting, None
            if first is not None and self.phase == TRAINING:
                first.number = counts[root] = counts.get(root, -1) + 1
                renumbered, number = first.number != number, first.number
                self.left_out -= 1
                self.prove(first, renumbered)
            self._backward = number
            self.in_backward = True

        return enter


TRANSFORMED = (
    "Modules were called inside of torch.func (grad, vmap, jvp …), where a tensor has no values of its own "
    "to read. What is computed there is neither traced nor measured; gradients of parameters are, as the "
    "optimizer takes them."
)


def in_transform(tensor: Any = None) -> bool:
    """Return whether a transformation of ``torch.func`` computes now; of a tensor, whether it is its own."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return False
    return not isinstance(tensor, Tensor) or torch._C._functorch.is_functorch_wrapped_tensor(tensor)


class IPassSink(Protocol):
    """Receives forward passes of model chunks (``root``)."""

    def forward_begins(self, root: int, training: bool) -> None: ...

    def forward_ends(self, output: Any) -> None: ...


def hook_passes(
    roots: Sequence[nn.Module], sink: IPassSink, inside: Callable[[], Iterable[Any]] = tuple
) -> list[Any]:
    """Put hooks on ``roots`` and return their handles; none stays where one cannot be put.

    While torch.compile traces through a hook, the hook does nothing and leaves nothing in the graph.
    ``inside`` puts on hooks that are to run inside of the pass, also on a root itself, and gives their
    handles one by one; the end of the pass is hooked after them.
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
        remove_all(handles)
        raise
    return handles


def when_backpropagated(output: Any, call: Callable[[], None]) -> None:
    """Call something whenever a gradient comes back to the first tensor of an output that can have one."""
    if isinstance(output, GraphPass):
        output.backpropagated.append(call)
    elif torch.is_grad_enabled() and (tensor := next(_differentiable(output), None)) is not None:
        tensor.register_hook(lambda gradient: call())  # type: ignore[no-untyped-call]


def at_each_backward(output: Any, call: Callable[[], None]) -> None:
    """Call something where a backward pass comes to a model's output, once in each pass.

    A loss may be made of any of the tensors there: logits although the model gave its own loss first, hidden
    states, several of them. So each is hooked, and the first that a pass comes to calls.
    """
    if isinstance(output, GraphPass):
        output.backpropagated.append(call)
        return
    if not torch.is_grad_enabled():
        return
    # A leaf, such as a parameter that a model gives, would keep its hook.
    tensors = {id(tensor): tensor for tensor in _differentiable(output) if tensor.grad_fn is not None}
    newest = -1

    def arrived(gradient: Tensor) -> None:
        nonlocal newest
        number = torch._C._current_graph_task_id()
        if number != newest:
            newest = number
            call()

    for tensor in tensors.values():
        tensor.register_hook(arrived)  # type: ignore[no-untyped-call]


def left_out_sentence(step: int, passes: int) -> str:
    """Return the warning at the first step with passes that are no training."""
    return (
        f"Step {step} had forward passes that are no training, without gradients (torch.no_grad, "
        f"inference_mode, generate) or in evaluation mode and never backpropagated: {passes}. They are not "
        "traced, there and "
        'later; the status counts them. To trace such passes, put them into `with tracer.phase("eval"):` '
        'or `with tracer.phase("generate"):`.'
    )


def after_backward(call: Callable[[], None]) -> None:
    """Call something once the backward pass that is going on is over, after what was queued before.

    Where none is going on it is called at once: nothing may raise into what called us.
    """
    if torch._C._current_graph_task_id() == -1:
        call()
        return
    torch.autograd.Variable._execution_engine.queue_callback(call)


def _differentiable(output: Any, depth: int = 0) -> Iterator[Tensor]:
    """Give the tensors of an output that can have a gradient, also of nested ones and of dataclasses."""
    if isinstance(output, Tensor):
        if output.requires_grad:
            yield output
        return
    values: Iterable[Any] = ()
    if isinstance(output, (tuple, list)):
        values = output
    elif isinstance(output, Mapping):
        values = output.values()
    elif is_dataclass(output) and not isinstance(output, type):
        values = vars(output).values() if hasattr(output, "__dict__") else ()
    if depth < _DEPTH:
        for value in values:
            yield from _differentiable(value, depth + 1)


class PassHooks:
    """Reports passes inside of steps by ``notify(method of instruments, *arguments)``, which never raises."""

    def __init__(self, roots: Sequence[nn.Module], notify: Callable[..., None]) -> None:
        self._roots = tuple(roots)
        self._notify = notify
        self._handles: list[Any] = []
        self._chunk = 0
        self._reported = False
        self._step = 0
        self.inside = False
        """Whether a step is going on."""
        self._evaluated = False
        """Whether passes in evaluation mode are backpropagated here; before one was, they are taken for no
        training.
        """
        self.phases = 0
        """Phases other than training that are going on. Without one, a pass without gradients is no training
        and is not reported.
        """

    def set(self, wanted: bool) -> None:
        """Put the hooks on, or take them off. Safe twice."""
        if wanted == bool(self._handles):
            return
        if wanted:
            self._handles = hook_passes(self._roots, self)
        else:
            remove_all(self._handles)

    @property
    def begun(self) -> bool:
        return self._step > 0

    def begin(self) -> None:
        """Begin a step; backward passes of earlier ones belong to none."""
        self._step += 1
        self.inside = True

    def forward_begins(self, root: int, training: bool) -> None:
        self._chunk = root
        self._reported = self.inside and (
            self.phases > 0 or (torch.is_grad_enabled() and (training or self._evaluated))
        )
        if self._reported:
            self._notify("forward_begins", root)

    def forward_ends(self, output: Any) -> None:
        if not self.inside:
            return
        step, chunk, reported = self._step, self._chunk, self._reported

        def arrived() -> None:
            if self.inside and step == self._step:
                self._evaluated = self._evaluated or not reported
                if reported:
                    self._notify("backward_begins", chunk)
                    after_backward(lambda: self._notify("backward_ends"))

        if reported:
            self._notify("forward_ends", output)
        at_each_backward(output, arrived)
