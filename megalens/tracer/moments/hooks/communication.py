"""What collectives that the training calls by name are given, and what they give."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, distributed

from .. import measure
from .values import local_values, measurable

__all__ = ["Communication"]

# By function: places and names of the tensors, or lists of them, that it reads and that it writes.
_TENSOR = ((0, "tensor"),)
_OPERATIONS: Mapping[str, tuple[tuple[tuple[int, str], ...], tuple[tuple[int, str], ...]]] = {
    "all_reduce": (_TENSOR, _TENSOR),
    "broadcast": (_TENSOR, _TENSOR),
    "reduce": (_TENSOR, _TENSOR),
    "all_gather": (((1, "tensor"),), ((0, "tensor_list"),)),
    "all_gather_into_tensor": (((1, "input_tensor"),), ((0, "output_tensor"),)),
    "reduce_scatter": (((1, "input_list"),), ((0, "output"),)),
    "reduce_scatter_tensor": (((1, "input"),), ((0, "output"),)),
    "all_to_all_single": (((1, "input"),), ((0, "output"),)),
    "gather": (_TENSOR, ((1, "gather_list"),)),
    "scatter": (((1, "scatter_list"),), _TENSOR),
    "send": (_TENSOR, ()),
    "recv": ((), _TENSOR),
    "isend": (_TENSOR, ()),
}


class Communication:
    """Stands before the functions of ``torch.distributed`` while a step is measured; at other times these are torch's own.

    Of a collective that is waited for later (``async_op=True``) only what it is given is measured. What DDP reduces is not called by name, and not seen.

    Parameters
    ----------
    keep : callable
        Takes a name, such as ``all_reduce/input0``, and rows float64 ``[n, 11]`` on the device.
    spent : callable
        Takes a function and calls it, so that neither its time nor an error of its own is the training's.
    """

    def __init__(
        self, keep: Callable[[str, Tensor], None], spent: Callable[[Callable[[], None]], None]
    ) -> None:
        self._keep, self._spent = keep, spent
        self._on = False
        self._before: list[tuple[Any, str, Any, Any]] = []

    def begin(self) -> None:
        """Stand before the functions."""
        self.end()
        if not distributed.is_available():
            return
        self._on = True
        for operation in _OPERATIONS:
            own = getattr(distributed, operation, None)
            if own is None:
                continue
            ours = self._seen(operation, own)
            for module in (distributed, distributed.distributed_c10d):
                if getattr(module, operation, None) is own:
                    setattr(module, operation, ours)
                    self._before.append((module, operation, own, ours))

    def end(self) -> None:
        """Give the functions back, but for those that somebody else has replaced meanwhile. Safe twice."""
        self._on = False
        before, self._before = self._before, []
        for module, operation, own, ours in before:
            if getattr(module, operation) is ours:
                setattr(module, operation, own)

    def _seen(self, operation: str, own: Callable[..., Any]) -> Callable[..., Any]:
        given, made = _OPERATIONS[operation]

        @functools.wraps(own)
        def seen(*args: Any, **kwargs: Any) -> Any:
            looks = self._on and not torch.compiler.is_compiling()
            if looks:
                self._spent(lambda: self._look(f"{operation}/input0", given, args, kwargs))
            work = own(*args, **kwargs)
            # What is waited for gives nothing back, or the sender's rank.
            if looks and (work is None or isinstance(work, int)):
                self._spent(lambda: self._look(f"{operation}/output0", made, args, kwargs))
            return work

        return seen

    def _look(
        self, name: str, where: tuple[tuple[int, str], ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        for at, keyword in where:
            found = args[at] if len(args) > at else kwargs.get(keyword)
            for tensor in [found] if isinstance(found, Tensor) else found or ():
                values = local_values(tensor) if measurable(tensor) else None
                if values is not None:
                    self._keep(name, measure([values]))
