"""Our hooks on modules, which no copy of a module has, neither in memory nor in a file."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer

Observed = Callable[[Callable[[Any], None]], Any]
"""Calls what it is given with a tensor of each forward pass, until ``remove()`` of what it returns."""

_HOOKS = {
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
}
"""Where a module keeps its hooks by number, and what it stores of each elsewhere."""


class OwnHook:
    """A function that a module calls as a hook.

    ``copy.deepcopy``, ``pickle`` and ``torch.save`` copy what ``Module.__getstate__`` gives. From the first
    hook on it leaves hooks of this class out: a copy of a traced model is not traced, and can be read where
    there is no Megalens. Where a module's class overrides ``__getstate__``, the copy has a function of the
    standard library in place of the hook, which does nothing.
    """

    __slots__ = ("__weakref__", "call")

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        _leave_out_of_copies()
        _leave_uncompiled()

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)

    def __deepcopy__(self, memo: Any) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


class StableHooks:
    """All our hooks on one module that may be compiled, behind two that stay.

    Compiled code is compiled anew when the number of hooks changes on a module that had some. So those that
    come and go are in lists here.
    """

    def __init__(self, module: nn.Module) -> None:
        self.before: list[tuple[Callable[..., Any], bool]] = []
        self.after: list[Callable[..., Any]] = []
        self._handles = [
            module.register_forward_pre_hook(OwnHook(self.called), prepend=True, with_kwargs=True),
            module.register_forward_hook(OwnHook(self.returned)),
        ]

    def called(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Run the hooks before the module, as torch does."""
        changed = False
        for call, with_kwargs in tuple(self.before):
            new = call(module, args, kwargs) if with_kwargs else call(module, args)
            if new is not None:
                changed = True
                args, kwargs = new if with_kwargs else (new if isinstance(new, tuple) else (new,), kwargs)
        return (args, kwargs) if changed else None

    def returned(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Run the hooks after the module, as torch does."""
        given = output
        for call in tuple(self.after):
            new = call(module, args, output)
            output = output if new is None else new
        return None if output is given else output

    def remove(self) -> None:
        """Take the two off, and with them all that is here. Safe twice."""
        remove_all(self._handles)


class Added:
    """Handle of a hook in one of these lists."""

    def __init__(self, hooks: list[Any], hook: Any, first: bool) -> None:
        self._hooks, self._hook = hooks, hook
        hooks.insert(0 if first else len(hooks), hook)

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)


hooks_of: weakref.WeakKeyDictionary[nn.Module, StableHooks] = weakref.WeakKeyDictionary()
"""Of modules that may be compiled."""


def hook_before(
    module: nn.Module, call: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
) -> Any:
    """Do as ``register_forward_pre_hook``, and return its handle."""
    stable = hooks_of.get(module)
    if stable is not None:
        return Added(stable.before, (call, with_kwargs), prepend)
    return module.register_forward_pre_hook(OwnHook(call), prepend=prepend, with_kwargs=with_kwargs)


def hook_after(
    module: nn.Module, call: Callable[..., Any], *, prepend: bool = False, always_call: bool = False
) -> Any:
    """Do as ``register_forward_hook``, and return its handle.

    ``always_call`` does not hold for a module that may be compiled.
    """
    stable = hooks_of.get(module)
    if stable is not None:
        return Added(stable.after, call, prepend)
    return module.register_forward_hook(OwnHook(call), prepend=prepend, always_call=always_call)


def remove_all(handles: list[Any]) -> None:
    """Take the hooks of these handles off, and forget them. Safe twice."""
    while handles:
        handles.pop().remove()


@functools.cache
def _leave_out_of_copies() -> None:
    """Make every module leave our hooks out of its state.

    Nothing less will do: handles refer to a module's own dicts, which can be neither replaced nor made to
    copy themselves.
    """
    before: Callable[[nn.Module], Any] = nn.Module.__getstate__

    @functools.wraps(before)
    def getstate(module: nn.Module) -> Any:
        return _stripped(before(module))

    nn.Module.__getstate__ = getstate  # type: ignore[method-assign]


@functools.cache
def _leave_uncompiled() -> None:
    """Exempt these hooks from compilation where torch runs them around the code of a compiled module.

    It would compile each by itself. Inside of what is compiled they are traced through.
    """
    leave_uncompiled(OwnHook.__call__)


def leave_uncompiled(function: Any) -> None:
    """Exempt a function, and what it calls, from compilation where it is called by itself."""
    with contextlib.suppress(ImportError):
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

        strategy = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
        set_code_exec_strategy(function.__code__, strategy)


def _stripped(state: Any) -> Any:
    if not isinstance(state, dict):
        return state
    for name, others in _HOOKS.items():
        hooks = state.get(name) or {}
        ours = {number for number, hook in hooks.items() if isinstance(hook, OwnHook)}
        if ours:
            copies = {each: type(state[each])(state[each]) for each in (name, *others) if each in state}
            for each in copies.values():
                for number in ours:
                    each.pop(number, None)
            state = {**state, **copies}
    return state


def step_hook(call: Callable[..., Any]) -> Callable[..., None]:
    """Return a hook of an optimizer that ``torch.compile`` leaves as it is where it compiles the step.

    What is traced through would change that code, and its numbers with it. torch's own ``step`` breaks the
    graph before hooks are called, so that they cost none.
    """

    def hook(*args: Any) -> None:
        call(*args)

    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    leave_uncompiled(hook)
    return hook


def hooked_optimizer(optimizer: Any) -> Any:
    """Return the optimizer whose steps call hooks: itself, or the one that it wraps; None for anything else.

    What only wraps one calls no hooks, though it may be an ``Optimizer`` by its class, as those of accelerate
    and torch's ``PostLocalSGDOptimizer`` are.
    """
    inner = getattr(optimizer, "optimizer", optimizer)
    if isinstance(inner, Optimizer) and not hasattr(inner, "_optimizer_step_pre_hooks"):
        # Its __init__ was not called.
        inner = getattr(inner, "optim", None)
    return inner if hasattr(inner, "register_step_post_hook") else None
