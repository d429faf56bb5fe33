"""Modules and parameters that a script puts into its model while that is traced."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

_NAMED = 3


class ModelChanges:
    """Says what has become a part of the model since tracing began: it has no hooks to be seen by.

    torch tells of every module and parameter that is assigned anywhere. What is assigned to a module of this
    model, and was not its own, is looked at as the next step begins: sharding puts other parameters in for
    the time of a pass.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        The chunks of the model.
    warn : callable
        Takes a sentence.
    """

    def __init__(self, roots: Sequence[nn.Module], warn: Callable[[str], None]) -> None:
        self._roots, self._warn = tuple(roots), warn
        # By id: parameters compare by value.
        self._known: weakref.WeakValueDictionary[int, nn.Module | nn.Parameter] = (
            weakref.WeakValueDictionary()
        )
        self._learn()
        self._assigned: dict[tuple[nn.Module, str], nn.Module | nn.Parameter | None] = {}
        """By holder and name what was there at first."""
        own = weakref.WeakMethod(self._comes)

        def comes(module: nn.Module, name: str, value: Any) -> None:
            if not torch.compiler.is_compiling() and (call := own()) is not None:
                call(module, name, value)

        self._handles = [
            torch_module.register_module_module_registration_hook(comes),
            torch_module.register_module_parameter_registration_hook(comes),
        ]

    def look(self, step: int) -> None:
        """Say what is new as a step begins."""
        if not self._assigned:
            return
        assigned, self._assigned = self._assigned, {}
        now = {
            (holder, name): value
            for (holder, name), before in assigned.items()
            if (value := _held(holder, name)) is not None and value is not before and _learns(value)
        }
        names = [
            f"{prefix}.{name}" if prefix else name
            for root in self._roots
            for prefix, holder in root.named_modules()
            for at, name in now
            if at is holder
        ]
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            self._warn(
                f"Modules or parameters came into the model after tracing began, before step {step}: "
                f"{', '.join(names[:_NAMED])}{more}. They are neither traced nor measured. To see them, "
                "close this tracer and call megalens.trace again; resume= goes on in the same recording."
            )
        self._learn()

    def close(self) -> None:
        """Listen no more. Safe twice."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _learn(self) -> None:
        for root in self._roots:
            self._known.update({id(each): each for each in root.modules()})
            self._known.update({id(each): each for each in root.parameters()})

    def _comes(self, module: nn.Module, name: str, value: Any) -> None:
        if value is not None and self._knows(module) and not self._knows(value):
            self._assigned.setdefault((module, name), _held(module, name))

    def _knows(self, value: nn.Module | nn.Parameter) -> bool:
        return self._known.get(id(value)) is value


def _learns(value: nn.Module | nn.Parameter) -> bool:
    """Return whether it is or has a parameter: a cache of keys and values may be a module too."""
    return isinstance(value, nn.Parameter) or next(value.parameters(), None) is not None


def _held(holder: nn.Module, name: str) -> nn.Module | nn.Parameter | None:
    return holder._modules.get(name, holder._parameters.get(name))
