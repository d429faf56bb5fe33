"""The moment before torch clips gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils import clip_grad

__all__ = ["before_clipping"]

_GROUPS = "_group_tensors_by_device_and_dtype"
_listeners: dict[object, Callable[[], None]] = {}


def before_clipping(call: Callable[[], None]) -> Callable[[], None]:
    """Have something called before ``clip_grad_norm_``, ``clip_grad_value_`` or a norm of gradients touches them, wherever the functions were imported to.

    Each of them first sorts the gradients with one helper of their module, which is wrapped from the first call on and passes on what it is given. A torch without it tells nobody.

    Parameters
    ----------
    call : callable
        Must not raise.

    Returns
    -------
    callable
        Ends it. Safe twice.
    """
    _listen()
    key = object()
    _listeners[key] = call

    def end() -> None:
        _listeners.pop(key, None)

    return end


@functools.cache
def _listen() -> None:
    before = getattr(clip_grad, _GROUPS, None)
    if before is None:
        return

    @functools.wraps(before)
    def told(*args: Any, **options: Any) -> Any:
        if _listeners and not torch.compiler.is_compiling():
            for call in tuple(_listeners.values()):
                call()
        return before(*args, **options)

    setattr(clip_grad, _GROUPS, told)
