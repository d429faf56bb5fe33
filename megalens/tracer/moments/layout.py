"""How a tensor's values lie in memory, where their order does not matter."""

from __future__ import annotations

from torch import Tensor

__all__ = ["layout_of"]


def layout_of(tensor: Tensor) -> tuple[int, int, int] | None:
    """Return rows, neighbouring values in a row, and values from the start of one row to the next.

    A dense tensor is one row, also when its axes are permuted; a cut along one axis is several. None where it takes more to say.
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
