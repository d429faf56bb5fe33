"""Measuring with torch's own operations: every device, no compiler, several passes over memory."""

from __future__ import annotations

import torch
from torch import Tensor

from .columns import NEAR_ZERO
from .merge import merge_rows

__all__ = ["measure_plainly"]

# Values at a time: what is in float64 meanwhile stays in a CPU's cache; a GPU wants fewer and larger launches.
_CHUNK = {"cpu": 1 << 16}
_CHUNK_ELSEWHERE = 1 << 24


def measure_plainly(tensor: Tensor, eps: float = NEAR_ZERO) -> Tensor:
    """Return one row of :data:`~megalens.protocol.MOMENT_COLUMNS`, float64 ``[11]`` on the tensor's device."""
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
