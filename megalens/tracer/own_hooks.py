"""Hooks of ours on modules, which no copy of a module has: neither one in memory nor one in a file."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from torch import nn

__all__ = ["OwnHook"]

_HOOKS = {
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
}
"""Where a module keeps its hooks by number, and what it keeps of each beside."""


class OwnHook:
    """A function that a module calls as a hook.

    ``copy.deepcopy``, ``pickle`` and ``torch.save`` copy what ``Module.__getstate__`` gives. From the first hook on it leaves hooks of this class out: a copy of a traced model is not traced, and can be
    read where there is no Megalens. Of a module whose class gives a state of its own, and so keeps them, the copy has a function of the standard library in their place, which does nothing.

    Parameters
    ----------
    call : callable
        What is called.
    """

    __slots__ = ("__weakref__", "call")

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        _leave_out_of_copies()

    def __call__(self, *told: Any) -> Any:
        """Call it with what a module tells its hooks."""
        return self.call(*told)

    def __deepcopy__(self, memo: Any) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


@functools.cache
def _leave_out_of_copies() -> None:
    """Have every module leave our hooks out of its state. There is no smaller place: handles hold on to a module's own dicts, which can be neither replaced nor made to copy themselves."""
    before: Callable[[nn.Module], Any] = nn.Module.__getstate__

    @functools.wraps(before)
    def getstate(module: nn.Module) -> Any:
        return _stripped(before(module))

    nn.Module.__getstate__ = getstate  # type: ignore[method-assign]


def _stripped(state: Any) -> Any:
    if not isinstance(state, dict):
        return state
    for name, beside in _HOOKS.items():
        hooks = state.get(name) or {}
        ours = {number for number, hook in hooks.items() if isinstance(hook, OwnHook)}
        if ours:
            kept = {each: type(state[each])(state[each]) for each in (name, *beside) if each in state}
            for each in kept.values():
                for number in ours:
                    each.pop(number, None)
            state = {**state, **kept}
    return state
