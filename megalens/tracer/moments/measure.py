"""The entrance: tensors in, their moments out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import TracerError
from . import gpu as gpu
from .merge import merge_rows
from .native import library
from .part import COLUMNS, NEAR_ZERO, TYPES

# Values at a time: what is in float64 meanwhile stays in a CPU's cache; a GPU wants fewer and larger
# launches.
_CHUNK = {"cpu": 1 << 16}
_CHUNK_ELSEWHERE = 1 << 24


# Measuring with torch's own operations: every device, no compiler, several passes over memory.
def measure_plainly(tensor: Tensor, eps: float = NEAR_ZERO) -> Tensor:
    """Return one row of :data:`~megalens.protocol.MOMENT_COLUMNS`, float64 ``[11]``, on the device."""
    flat = tensor.detach().reshape(-1)
    chunk = _CHUNK.get(tensor.device.type, _CHUNK_ELSEWHERE)
    if flat.numel() <= chunk:
        return _row(flat, eps)
    rows = torch.stack([_row(part, eps) for part in torch.split(flat, chunk)])
    merged: Tensor = merge_rows(rows[:, None])[0]
    return merged


def _row(values: Tensor, eps: float) -> Tensor:
    x = values.double()
    nan = x.isnan()
    finite = x.isfinite()
    nan_count = nan.sum().double()
    count = finite.sum().double()
    mean = torch.where(finite, x, 0.0).sum() / count
    low = high = mean
    if values.numel():
        low, high = torch.where(finite, x, torch.inf).amin(), torch.where(finite, x, -torch.inf).amax()
        low, high = (torch.where(count > 0, end, torch.nan) for end in (low, high))
        # Equal values have no spread, not even by the rounding of their mean.
        mean = torch.where(low == high, low, mean)
    d = torch.where(finite, x - mean, 0.0)
    d2 = d * d
    inf_count = values.numel() - count - nan_count
    near = torch.count_nonzero(x.abs() < eps).double()
    negative = torch.count_nonzero(x == -torch.inf).double()
    powers = (d2.sum(), (d2 * d).sum(), (d2 * d2).sum())
    return torch.stack([count, mean, *powers, low, high, nan_count, inf_count, negative, near])


def measure(tensors: Sequence[Tensor], threads: int | None = None, eps: float = NEAR_ZERO) -> Tensor:
    """Measure tensors where they are, without waiting for their device.

    Parameters
    ----------
    tensors : sequence of Tensor
        float32, bfloat16, float16 or float64, of any shape, all on one device. They are only read, and no
        autograd graph is kept.
    threads : int, optional
        How many threads the kernel for CPUs takes; as many as torch when absent.
    eps : float
        Values with |x| < eps count as near zero.

    Returns
    -------
    Tensor
        float64, ``[n, 11]`` on that device: count, mean, the central moments M2, M3, M4, min, max of the
        finite values, and how many were NaN, infinite, of these -∞, and near zero; columns as
        :data:`megalens.protocol.MOMENT_COLUMNS`. Where no value is finite: count 0, moments 0, NaN for mean,
        min and max.

    Raises
    ------
    TracerError
        When a tensor is of another type, has no values of its own (``meta``, sparse, quantised), or lies on
        another device than the first.
    """
    if not tensors:
        return torch.empty((0, COLUMNS), dtype=torch.float64)
    natively = measure_natively(tensors, threads=threads, eps=eps)
    if natively is not None:
        return natively
    for tensor in tensors:
        _check(tensor, tensors[0].device)
    # Rows outlive the pass that they were measured in, so they are no inference tensors.
    with torch.inference_mode(False), torch.no_grad():
        measured = gpu.measure(tensors, eps) if tensors[0].is_cuda else None
        if measured is not None:
            return measured
        rows = [measure_natively([tensor], threads=threads, eps=eps) for tensor in tensors]
        both = zip(tensors, rows, strict=True)
        return torch.stack([measure_plainly(each, eps) if row is None else row[0] for each, row in both])


def measure_natively(
    tensors: Sequence[Tensor],
    out: Tensor | None = None,
    threads: int | None = None,
    eps: float = NEAR_ZERO,
) -> Tensor | None:
    """Return what :func:`measure` does, or None where the kernel for CPUs cannot read every one of these.

    It can read those of nearly every model on a CPU, and a training step waits for it: so no tensor is asked
    more than the kernel has to know. ``out`` is float64 ``[n, 11]``, contiguous, on the CPU.
    """
    kernel = library.load()
    if isinstance(kernel, str):
        return None
    items = []
    for tensor in tensors:
        item = kernel.describe(tensor)
        if item is None:
            return None
        items.append(item)
    return kernel.measure(items, out, threads, eps)


def measure_each(data: Tensor, eps: float = NEAR_ZERO) -> Tensor:
    """Return :func:`measure` of ``data[0]``, ``data[1]`` and so on, in the calling thread: small tensors."""
    kernel = library.load()
    first = None if isinstance(kernel, str) or not len(data) else kernel.describe(data[0])
    if isinstance(kernel, str) or first is None:
        return measure(data.unbind(), threads=1, eps=eps)
    apart = data.stride(0) * data.element_size()
    items = [(first[0] + index * apart, *first[1:]) for index in range(len(data))]
    return kernel.measure(items, None, 1, eps)


def kernel_name(device: torch.device | str = "cpu") -> str:
    """Return ``native (AVX-512 | AVX2 | portable)``, ``triton`` or ``plain``: what measures on a device."""
    kind = torch.device(device).type
    kernel = library.load() if kind == "cpu" else gpu.load() if kind == "cuda" else ""
    return "plain" if isinstance(kernel, str) else kernel.name


def _check(tensor: Tensor, device: torch.device) -> None:
    if tensor.dtype not in TYPES:
        known = ", ".join(str(each).removeprefix("torch.") for each in TYPES)
        raise TracerError(
            f"Expected a tensor of {known} to measure; got {tensor.dtype}. Convert it, or leave it out."
        )
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        raise TracerError(
            f"Expected a tensor with values in memory; got layout {tensor.layout} on {tensor.device}. "
            "Measure its dense or local values."
        )
    if tensor.device != device:
        raise TracerError(
            f"Expected every tensor on {device}, as the first; got one on {tensor.device}. Measure each "
            "device in a call."
        )
