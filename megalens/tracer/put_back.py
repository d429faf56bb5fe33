"""Puts back what a pass that is none of the training's has changed: the next one finds all as it was."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

_OF_TORCH = frozenset(vars(nn.Module()))
_CONTAINERS = (list, dict, set)


@contextlib.contextmanager
def extra_pass(model: nn.Module) -> Iterator[None]:
    """Have a pass inside computed by the interpreter, without gradients, and put back what it changes."""
    # Nothing is compiled before torch has loaded its compiler, which takes a second.
    loaded = "torch._dynamo" in sys.modules
    stance = torch.compiler.set_stance("force_eager") if loaded else contextlib.nullcontext()
    with put_back(model), torch.no_grad(), stance:
        yield


@contextlib.contextmanager
def put_back(model: nn.Module) -> Iterator[None]:
    """Leave random numbers, buffers and attributes of modules, afterwards, as they were before.

    Parameters and what objects outside of the modules keep are not looked at.
    """
    undo = [_of_module(each) for each in model.modules()]
    state, numbers = random.getstate(), sys.modules.get("numpy.random")
    drawn = None if numbers is None else numbers.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(state)
            if numbers is not None:
                numbers.set_state(drawn)
            with torch.no_grad():
                for each in undo:
                    each()


def _of_module(module: nn.Module) -> Callable[[], None]:
    """Return what puts back one module."""
    own = vars(module)
    if isinstance(module, torch.jit.ScriptModule):
        # Python sees no attributes of it but buffers, and not how often they were written.
        copies = [(buffer, buffer.detach().clone()) for buffer in module.buffers(recurse=False)]

        def put_copies() -> None:
            for buffer, before in copies:
                buffer.copy_(before)

        return put_copies
    # Torch's own modules have buffers, and what wraps a model sets itself up in its first pass.
    names = () if type(module).__module__.startswith("torch.") else own.keys() - _OF_TORCH
    attributes = {name: own[name] for name in names}
    undo = [_of_value(value) for value in attributes.values()]
    buffers = own["_buffers"].copy()
    undo += [_of_value(buffer) for buffer in buffers.values()]
    there = {name: set(own[name]) for name in ("_parameters", "_modules")}

    def put() -> None:
        if names:
            for name in own.keys() - _OF_TORCH - attributes.keys():
                del own[name]
            own.update(attributes)
        own["_buffers"].clear()
        own["_buffers"].update(buffers)
        for name, before in there.items():
            for new in set(own[name]) - before:
                del own[name][new]
        for each in undo:
            each()

    return put


def _of_value(value: Any) -> Callable[[], Any]:
    """Return what puts back one buffer or attribute."""
    if isinstance(value, Tensor) and not value.requires_grad and not value.is_inference():
        version, copy = value._version, value.detach().clone()
        return lambda: None if value._version == version else value.copy_(copy)
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: value.set_state(state)
    if isinstance(value, random.Random):
        drawn = value.getstate()
        return lambda: value.setstate(drawn)
    if type(value) in _CONTAINERS:
        return _of_container(value, value.copy())
    return lambda: None


def _of_container(value: Any, before: Any) -> Callable[[], None]:
    def put() -> None:
        value.clear()
        if isinstance(value, list):
            value.extend(before)
        else:
            value.update(before)

    return put
