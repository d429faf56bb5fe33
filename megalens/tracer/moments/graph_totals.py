"""Statistics that compiled code computes by itself, also where a CUDA graph replays it and no Python runs.

What is measured is a number on the device, which the code reads each time that it runs: for other places or
other steps nothing is compiled or captured anew. A figure that is off costs a kernel that reads one number.
Nothing waits for the device, and nothing is read back inside of a step.

::

    step begins ─▶ enabled[slots] = 1     graph: total(tensor, first slot, place)
                         └──────────────▶ rows[slot] ← merged with the moments of the tensor
    step ends ─▶ rows of the slots, copied on the device ─▶ producer thread
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import TracerError
from ..graph_operator import define_effect
from . import gpu
from .measure import measure, measure_plainly
from .merge import merge_rows
from .part import COLUMNS, TYPES

_SLOTS = 16384
"""Tensors and gradients on a device of which there can be figures: 1.5 MB."""


class DeviceTotals:
    """The figures on one device, which compiled code adds to; all tracers of the process share them."""

    def __init__(self, device: torch.device) -> None:
        self.enabled = torch.zeros(_SLOTS, dtype=torch.int32, device=device)
        self.rows = torch.zeros((_SLOTS, COLUMNS), dtype=torch.float64, device=device)
        self.used = 0

    def add(self, tensor: Tensor, first: Tensor, place: int) -> None:
        """Add a tensor to its slot where that is enabled. On a GPU all of it can be captured."""
        if tensor.device.type == "cpu":
            at = int(first) + place
            if self.enabled[at]:
                self.rows[at : at + 1] = merge_rows(torch.stack([self.rows[at : at + 1], measure([tensor])]))
            return
        slot = first + place
        enabled = self.enabled.index_select(0, slot)
        measured = gpu.measure_where(tensor, enabled)
        if measured is None:
            measured = measure_plainly(tensor)[None, None]
        before = self.rows.index_select(0, slot)
        merged = merge_rows(torch.cat([before[None], measured]))
        self.rows.index_copy_(0, slot, torch.where(enabled[:, None] != 0, merged, before))


@functools.cache
def totals_of(device: torch.device) -> DeviceTotals:
    return DeviceTotals(device)


class GraphTotals:
    """What makes hooks leave figures in code that is compiled: see ``GraphProbes``."""

    def __init__(self) -> None:
        define_effect("total", "(Tensor tensor, Tensor first, int place) -> ()", _run_total, capturable=True)

    def reserve(self, module: nn.Module, ends: int) -> tuple[torch.device, int, Tensor]:
        """Take two slots for each end of a module.

        Returns
        -------
        tuple
            The module's device, its first slot, and that as int64 ``[1]`` on the device: an input of the
            graph, so that modules of one class share theirs.
        """
        parameter = next(module.parameters(), None)
        device = torch.device("cpu") if parameter is None else parameter.device
        totals = totals_of(device)
        if totals.used + 2 * ends > _SLOTS:
            raise TracerError(
                f"compiled='captured' measures at most {_SLOTS // 2} ends of modules on a device; this model "
                "has more. Trace it with compiled=True."
            )
        first, totals.used = totals.used, totals.used + 2 * ends
        return device, first, torch.tensor([first], device=device)

    @staticmethod
    def leave(tensor: Tensor, first: Tensor, end: int) -> Tensor:
        """Let the graph measure a tensor and its gradient; return the tensor that it goes on with.

        What runs without gradients is no training, and is not measured.
        """
        if not torch.is_grad_enabled() or tensor.dtype not in TYPES:
            return tensor
        if tensor.requires_grad:
            same: Tensor = _Totalled.apply(tensor, first, end)  # type: ignore[no-untyped-call]
            return same
        torch.ops.megalens.total(tensor, first, 2 * end)
        return tensor


class TotalSlots:
    """Some slots of one device, as they are due together: between :meth:`begin` and :meth:`take`."""

    def __init__(self, device: torch.device, slots: Sequence[int]) -> None:
        self._totals = totals_of(device)
        host = torch.tensor(slots)
        # From memory that is not pinned the copy would have the host wait.
        self._slots = (host.pin_memory() if device.type == "cuda" else host).to(device, non_blocking=True)

    def begin(self) -> None:
        self._totals.rows.index_fill_(0, self._slots, 0.0)
        self._totals.enabled.index_fill_(0, self._slots, 1)

    def take(self) -> Tensor:
        """Measure no more; return the figures, float64 ``[n, 11]``, on the device."""
        self._totals.enabled.index_fill_(0, self._slots, 0)
        return self._totals.rows.index_select(0, self._slots)


class _Totalled(torch.autograd.Function):
    """Hands a tensor on as it is, and lets the graph measure it and its gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, first: Tensor, end: int) -> Tensor:
        ctx.end = end
        ctx.save_for_backward(first)
        torch.ops.megalens.total(tensor, first, 2 * end)
        # A view made here could not be changed in place by the model; this is the same memory and no view.
        same: Tensor = torch.ops.aten._unsafe_view(tensor, tensor.shape)
        return same

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (first,) = ctx.saved_tensors
        torch.ops.megalens.total(gradient, first, 2 * ctx.end + 1)
        return gradient, None, None


def _run_total(tensor: Tensor, first: Tensor, place: int) -> None:
    with torch.no_grad():
        totals_of(tensor.device).add(tensor, first, place)
