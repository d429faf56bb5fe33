"""A number of what the model was given in a step, by which data that come again are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from ...own_hooks import hook_before, remove_all
from ..part import COLUMNS

_MOST_VALUES, _MOST_TENSORS = 1 << 16, 8
# Odd numbers with bits of both kinds all over: the second one mixes what the first has brought up. By hand.
_FIRST, _SECOND = 0x9E3779B97F4A7C15 - (1 << 64), 0xBF58476D1CE4E5B9 - (1 << 64)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Inputs:
    """Sums a hash of each value that the roots are given, in training only. Reads nothing of a device.

    The sum is the same in whatever order the values and the micro-batches of a step come. With it goes of how
    many calls it is: a search gives the same data several times. Of larger tensors 65,536 values count, at
    even distances.
    """

    def __init__(
        self,
        roots: Sequence[nn.Module],
        keep: Callable[[Tensor], None],
        spent: Callable[[Callable[[], None]], None],
    ) -> None:
        self._roots, self._keep, self._spent = roots, keep, spent
        self._handles: list[Any] = []
        self._sum: Tensor | None = None
        self._calls = 0

    def begin(self) -> None:
        self._sum, self._calls = None, 0
        self._handles = [hook_before(root, self._called, with_kwargs=True) for root in self._roots]

    def end(self) -> None:
        """Give the step's number, and take the hooks off. Safe twice."""
        remove_all(self._handles)
        total, self._sum = self._sum, None
        if total is not None:
            # As exact as a float64 can be.
            row = torch.zeros(1, COLUMNS, dtype=torch.float64, device=total.device)
            row[0, 0], row[0, 1] = self._calls, total & ((1 << 52) - 1)
            self._keep(row)

    def _called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling() or not (module.training and torch.is_grad_enabled()):
            return
        self._spent(lambda: self._add(args, kwargs))

    def _add(self, args: Any, kwargs: Any) -> None:
        self._calls += 1
        tensors = (leaf for leaf in _pytree.tree_leaves((args, kwargs)) if type(leaf) is Tensor)
        with torch.no_grad():
            for tensor in islice(tensors, _MOST_TENSORS):
                if not tensor.numel() or tensor.is_complex() or tensor.element_size() not in _BITS:
                    continue
                flat = tensor.reshape(-1)[:: max(1, tensor.numel() // _MOST_VALUES)]
                bits = flat.contiguous().view(_BITS[tensor.element_size()]).long()
                mixed = (bits + 1) * _FIRST
                mixed = (mixed ^ (mixed >> 29)) * _SECOND
                total = (mixed ^ (mixed >> 32)).sum()
                self._sum = total if self._sum is None else self._sum + total.to(self._sum.device)
