"""The columns of a measured row, and the memory layout of a tensor's values."""

from __future__ import annotations

import torch
from torch import Tensor

from megalens.protocol import MOMENT_COLUMNS

COLUMNS = len(MOMENT_COLUMNS)
"""Figures of a row, in the order of :data:`megalens.protocol.MOMENT_COLUMNS`."""

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""Types of number that can be measured; the native kernel and the GPU's know them by their index here."""

NEAR_ZERO = 1e-8
"""Values whose size is below it count as near zero, where nobody says another."""


def layout_of(tensor: Tensor) -> tuple[int, int, int] | None:
    """Return rows, contiguous values in a row, and the distance between rows, where order does not matter.

    A dense tensor is one row, also when its axes are permuted; a cut along one axis is several. None for
    any other layout.
    """
    if tensor.is_contiguous():
        return 1, tensor.numel(), 0
    merged: list[tuple[int, int]] = []
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True):
        if size == 1:
            continue
        if merged and merged[-1][0] == stride * size:
            merged[-1] = (stride, merged[-1][1] * size)
        else:
            merged.append((stride, size))
    if merged[-1][0] != 1:
        merged.append((1, 1))
    if len(merged) == 1:
        return 1, merged[0][1], 0
    if len(merged) == 2:
        return merged[0][1], merged[1][1], merged[0][0]
    return None


def rows_of(tensor: Tensor) -> tuple[int, int, int, int] | None:
    """Return groups, their distance, rows in each, and their distance, of ``[..., features]`` in order.

    None where a row is not contiguous, or for any other layout.
    """
    features = tensor.shape[-1]
    if tensor.is_contiguous():
        return 1, 0, tensor.numel() // features if features else 0, features
    merged: list[tuple[int, int]] = []
    for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    if tensor.stride(-1) != 1 or len(merged) > 2:
        return None
    (outer, apart), (rows, step) = [(1, 0)] * (2 - len(merged)) + merged
    return outer, apart, rows, step
