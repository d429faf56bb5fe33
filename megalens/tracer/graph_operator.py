"""The operators that probes leave in compiled code, and what brings them there.

``megalens::seen`` is one with effects that keep their order: no pass of the compiler drops it, runs it twice
or moves it before another. Which module it is of comes as a tensor, not as a number: numbers are part of a
graph, and modules of one class could not share theirs. What of the module it tells of is a number, the same
in all of its class.

::

    seen(tensors, module, end, what, names)      changed(tensor, module) → tensor
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._guards import CompileContext

from .errors import TracerError

VALUE, GRADIENT, BEGINS, BEGINS_WITH_GRADIENTS, ENDS, BACKPROPAGATED, NO_TENSOR, SUBCLASS, ODD_OUTPUT = range(
    9
)
"""What an operator tells."""

_SKIPS = "skip_nnmodule_hook_guards"
_open: set[int] = set()
_skipped_before = True


def compiles() -> bool:
    """Return whether anything that ``torch.compile`` has compiled in this process is still there."""
    frames: Any = sys.modules.get("torch._dynamo.convert_frame")
    return frames is not None and any(code() is not None for code in frames.input_codes.seen)


def guard_hooks(owner: int) -> bool:
    """Make the compiler notice hooks that come and go, until the owner's :func:`release_hooks`.

    By itself it takes a module that had no hooks when it was compiled for one that has none, and uses its
    code for others of its class. What it has compiled before is forgotten; return whether there was any.
    """
    global _skipped_before
    import torch._dynamo as dynamo

    if not _open:
        _skipped_before = getattr(dynamo.config, _SKIPS)
    _open.add(owner)
    setattr(dynamo.config, _SKIPS, False)
    compiled = compiles()
    dynamo.reset_code_caches()
    return compiled


def release_hooks(owner: int) -> None:
    """Restore the compiler's setting when no owner is left. Safe twice."""
    import torch._dynamo as dynamo

    if owner in _open:
        _open.discard(owner)
        if not _open:
            setattr(dynamo.config, _SKIPS, _skipped_before)


listeners: dict[int, Any] = {}
"""By number of a module what hears of it; until its probes are closed."""
compilations: list[set[Any]] = []
"""Of each that follows them: ids of the compilations that met a probe."""


def report(given: Any, item: int, module: Tensor, end: int) -> Any:
    """Let the graph report one tensor of what a module takes or gives, and its gradient.

    Returns what is given, with the tensor that the graph goes on with.
    """
    new, lost = at_item(given, item, lambda tensor: _reported(tensor, module, end, VALUE, GRADIENT))
    if lost is not None:
        torch.ops.megalens.seen([], module, end, lost, "")
    return new


def at_item(given: Any, item: int, leave: Callable[[Tensor], Tensor]) -> tuple[Any, int | None]:
    """Return what is given with what ``leave`` makes of one tensor in it; or why there is none to take."""
    several = isinstance(given, (tuple, list))
    tensor = (given[item] if len(given) > item else None) if several else given if item == 0 else None
    if not isinstance(tensor, Tensor):
        return given, NO_TENSOR
    if not _is_plain(tensor):
        return given, SUBCLASS
    if not several:
        return leave(tensor), None
    if type(given) in (tuple, list) or hasattr(given, "_fields"):
        return _with(given, item, leave(tensor)), None
    return given, ODD_OUTPUT


def report_all(args: Any, kwargs: Mapping[str, Any], module: Tensor, end: int) -> None:
    """Let the graph report one tensor, or all among arguments or members; not their gradients."""
    if isinstance(args, Tensor):
        lost = not _is_plain(args)
        torch.ops.megalens.seen([] if lost else [args.detach()], module, end, SUBCLASS if lost else VALUE, "")
        return
    names: list[str] = []
    tensors: list[Tensor] = []
    for name, value in [*enumerate(args), *kwargs.items()]:
        if isinstance(value, Tensor) and _is_plain(value):
            names.append(str(name))
            tensors.append(value.detach())
    torch.ops.megalens.seen(tensors, module, end, VALUE if tensors else NO_TENSOR, ",".join(names))


def report_end(output: Any, module: Tensor, end: int) -> Any:
    """Let the graph report the end of a pass, and the gradient of the first tensor that can have one.

    Returns the output that the graph goes on with.
    """
    if isinstance(output, Tensor):
        return _reported(output, module, end, ENDS, BACKPROPAGATED) if _is_plain(output) else output
    keys: list[Any] = list(output) if isinstance(output, dict) else []
    if type(output) in (tuple, list) or hasattr(output, "_fields"):
        keys = list(range(len(output)))
    tensors = [key for key in keys if isinstance(output[key], Tensor) and _is_plain(output[key])]
    if not tensors:
        torch.ops.megalens.seen([], module, end, ENDS, "")
        return output
    key = next((key for key in tensors if output[key].requires_grad), tensors[0])
    return _with(output, key, _reported(output[key], module, end, ENDS, BACKPROPAGATED))


def changed(output: Any, module: Tensor) -> Any:
    """Let the graph go on with a perturbed output (of a tuple, its first member perturbed)."""
    tensor = output[0] if isinstance(output, (tuple, list)) and output else output
    if not (isinstance(tensor, Tensor) and _is_plain(tensor) and tensor.is_floating_point()):
        return output
    new = _Changed.apply(tensor, module)  # type: ignore[no-untyped-call]
    if tensor is output:
        return new
    return _with(output, 0, new) if type(output) in (tuple, list) or hasattr(output, "_fields") else output


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided


def _reported(tensor: Tensor, module: Tensor, end: int, value: int, gradient: int) -> Tensor:
    if torch.is_grad_enabled() and tensor.requires_grad:
        seen: Tensor = _Seen.apply(tensor, module, end, value, gradient)  # type: ignore[no-untyped-call]
        return seen
    torch.ops.megalens.seen([tensor], module, end, value, "")
    return tensor


def _with(output: Any, key: Any, new: Tensor) -> Any:
    if isinstance(output, dict):
        # In place, so that it stays the class that it is.
        output[key] = new
        return output
    made = [*output[:key], new, *output[key + 1 :]]
    # A named tuple takes its members one by one.
    return type(output)(*made) if hasattr(output, "_fields") else type(output)(made)


class _Seen(torch.autograd.Function):
    """Hands a tensor on as it is, and lets the graph report it and its gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, module: Tensor, end: int, value: int, gradient: int) -> Tensor:
        ctx.gradient_report = end, gradient
        ctx.save_for_backward(module)
        torch.ops.megalens.seen([tensor], module, end, value, "")
        # A view made here could not be changed in place by the model; this is the same memory and no view.
        same: Tensor = torch.ops.aten._unsafe_view(tensor, tensor.shape)
        return same

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        (module,) = ctx.saved_tensors
        torch.ops.megalens.seen([gradient], module, *ctx.gradient_report, "")
        return gradient, None, None, None, None


class _Changed(torch.autograd.Function):
    """Lets the graph change a tensor, and its gradient as autograd would that of the change."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, module: Tensor) -> Tensor:
        ctx.save_for_backward(tensor, module)
        new: Tensor = torch.ops.megalens.changed(tensor, module)
        return new

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return torch.ops.megalens.changed_gradient(gradient, *ctx.saved_tensors), None


def _run_seen(tensors: list[Tensor], module: Tensor, end: int, what: int, names: str) -> None:
    found = listeners.get(int(module))
    if found is not None:
        found.heard[end].hear(tensors, what, names)


def _run_changed(tensor: Tensor, module: Tensor) -> Tensor:
    found = listeners.get(int(module))
    return _like(tensor, tensor if found is None else found.change(tensor))


def _run_changed_gradient(gradient: Tensor, tensor: Tensor, module: Tensor) -> Tensor:
    found = listeners.get(int(module))
    return _like(gradient, gradient if found is None else found.change_gradient(gradient, tensor))


def _like(given: Tensor, new: Tensor) -> Tensor:
    # What the compiler assumes: the layout of what was given, and never the same memory.
    return torch.empty_like(given).copy_(new)


def _fake_seen(*_: Any) -> None:
    # Only here the current compilation is known.
    for followed in compilations:
        followed.add(CompileContext.current_compile_id())


@functools.cache
def _library() -> Any:
    return torch.library.Library("megalens", "FRAGMENT")  # type: ignore[no-untyped-call]


@functools.cache
def define_effect(
    name: str,
    schema: str,
    run: Callable[..., Any],
    fake: Callable[..., Any] = lambda *_: _fake_seen(),
    capturable: bool = False,
) -> None:
    """Define an operator that no pass of the compiler drops or moves; once for the process.

    ``capturable``: a CUDA graph may replay what it launches. Any other would run once, as it is captured, and
    never again. Raises ``TracerError`` where torch has no operators with effects.
    """
    try:
        from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
    except ImportError as error:
        raise TracerError(
            f"Compiled models are traced with torch 2.13 or later, got {torch.__version__}. Trace the "
            "model uncompiled."
        ) from error
    library = _library()
    library.define(f"{name}{schema}", tags=() if capturable else (torch.Tag.cudagraph_unsafe,))
    library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"megalens::{name}", fake, lib=library)
    _register_effectful_op(getattr(torch.ops.megalens, name).default, _EffectType.ORDERED)


@functools.cache
def define_operators() -> None:
    """Define the operators, once for the process; ``TracerError`` where torch has none with effects."""
    define_effect("seen", "(Tensor[] tensors, Tensor module, int end, int what, str names) -> ()", _run_seen)
    define_effect(
        "changed",
        "(Tensor tensor, Tensor module) -> Tensor",
        _run_changed,
        lambda tensor, _: torch.empty_like(tensor),
    )
    define_effect(
        "changed_gradient",
        "(Tensor gradient, Tensor tensor, Tensor module) -> Tensor",
        _run_changed_gradient,
        lambda gradient, *_: torch.empty_like(gradient),
    )
