"""Runs the GPU's kernel: one launch a tensor, one merge for all, no transfer to the host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .merge import merge_rows
from .part import COLUMNS, NEAR_ZERO, layout_of

_BLOCK = 4096
_PROGRAMS = 512
"""Programs over one tensor at most: more than any GPU runs at once, few enough that merging their rows costs
little.
"""
_WARPS = 8


class TritonKernel:
    """The kernel, ready to be launched; raises ``ImportError`` without Triton."""

    name = "triton"

    def __init__(self) -> None:
        import triton.language as tl

        from .gpu_kernel import moments_kernel

        self._kernel: Any = moments_kernel
        self._types = {True: tl.float64, False: tl.float32}

    def measure(self, tensors: Sequence[Tensor], eps: float = NEAR_ZERO) -> Tensor:
        """Return a row for each tensor, float64 ``[n, 11]`` on their device."""
        flat = [_flat(tensor) for tensor in tensors]
        grids = [min(_PROGRAMS, -(-each.numel() // _BLOCK)) for each in flat]
        # What no program writes stays 0: a row without data.
        rows = torch.zeros(
            (max(grids, default=0), len(flat), COLUMNS), dtype=torch.float64, device=tensors[0].device
        )
        bounds = {True: eps, False: _above(eps)}
        with _current(tensors[0].device):
            for number, (each, programs) in enumerate(zip(flat, grids, strict=True)):
                if programs:
                    wide = each.dtype == torch.float64
                    self._kernel[(programs,)](
                        each, each.numel(), rows[0, number], rows.stride(0), rows,
                        BLOCK=_BLOCK, COMPUTE=self._types[wide], EPS=bounds[wide], SWITCHED=False,
                        num_warps=_WARPS,
                    )  # fmt: skip
        merged: Tensor = merge_rows(rows)
        return merged

    def measure_where(self, tensor: Tensor, enabled: Tensor, eps: float = NEAR_ZERO) -> Tensor:
        """Return float64 ``[k, 1, 11]``, to be merged; where ``enabled`` is 0 the tensor is not read."""
        flat = _flat(tensor)
        programs = min(_PROGRAMS, -(-flat.numel() // _BLOCK))
        rows = torch.zeros((max(programs, 1), 1, COLUMNS), dtype=torch.float64, device=tensor.device)
        wide = flat.dtype == torch.float64
        if programs:
            with _current(tensor.device):
                self._kernel[(programs,)](
                    flat, flat.numel(), rows, rows.stride(0), enabled,
                    BLOCK=_BLOCK, COMPUTE=self._types[wide], EPS=eps if wide else _above(eps), SWITCHED=True,
                    num_warps=_WARPS,
                )  # fmt: skip
        return rows


def _above(eps: float) -> float:
    """Return the least float32 that is not below ``eps``, so that comparing with either is the same."""
    found = np.float32(eps)
    # Compared as float64: NumPy 2 would round eps to float32 first.
    return float(found if float(found) >= eps else np.nextafter(found, np.float32(np.inf)))


class _Loaded:
    """The kernel once it was asked for; a GPU that fails to run it is tried only once."""

    kernel: TritonKernel | str | None = None


def load() -> TritonKernel | str:
    """Return the kernel, or why there is none."""
    if _Loaded.kernel is None:
        try:
            chosen = os.environ.get("MEGALENS_KERNEL") == "plain"
            _Loaded.kernel = "MEGALENS_KERNEL=plain" if chosen else TritonKernel()
        except ImportError as error:
            _Loaded.kernel = str(error)
    return _Loaded.kernel


def measure(tensors: Sequence[Tensor], eps: float = NEAR_ZERO) -> Tensor | None:
    """Return a row for each tensor, or None where the kernel cannot read one of them or cannot run here."""
    kernel = load()
    if isinstance(kernel, str) or not all(type(each) in (Tensor, nn.Parameter) for each in tensors):
        return None
    try:
        return kernel.measure(tensors, eps)
    except Exception as error:
        # Triton compiles on first use, with a C compiler and a driver that a machine may lack in a dozen
        # ways.
        _Loaded.kernel = f"it could not run: {error}"
        return None


def measure_where(tensor: Tensor, enabled: Tensor) -> Tensor | None:
    """Return figures of a tensor where ``enabled``, int32 ``[1]``, is not 0; None without Triton."""
    kernel = load()
    return None if isinstance(kernel, str) else kernel.measure_where(tensor, enabled)


def _flat(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().resolve_neg()
    layout = layout_of(tensor)
    if layout is not None and layout[0] == 1:
        # Dense in another order, which does not matter.
        return tensor.as_strided((tensor.numel(),), (1,))
    return tensor.contiguous().view(-1)


def _current(device: torch.device) -> AbstractContextManager[Any]:
    # Triton launches on the current device, whatever the tensors lie on.
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
