"""Which values of a tensor this process has and counts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["counted_here", "first_tensor", "half_precision", "local_values", "measurable"]

_TYPES = frozenset((torch.float32, torch.bfloat16, torch.float16, torch.float64))
_PLAIN = (Tensor, nn.Parameter)


def measurable(tensor: Any) -> bool:
    """Return whether this is a tensor of numbers that can be measured; ids and masks are not. An empty tensor has a row of count 0."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype in _TYPES
        and tensor.layout is torch.strided
        and not tensor.is_meta
    )


def local_values(tensor: Tensor) -> Tensor | None:
    """Return the values that lie here: of a ``DTensor`` the local shard without padding; None where they are parts of a sum over processes."""
    # Asking a plain tensor for what only others have raises an error inside, for each of thousands.
    if type(tensor) in _PLAIN:
        return tensor
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return _arrived(tensor)
    if any(placement.is_partial() for placement in placements):
        return None
    local: Tensor = tensor._local_tensor  # type: ignore[attr-defined]
    # to_local() would be a part of the autograd graph; only the values are looked at here.
    return _arrived(local)


def counted_here(tensor: Tensor) -> bool | None:
    """Return whether this process counts its values of a ``DTensor``: every holder of a shard, of replicas the first. None for a plain tensor."""
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return None
    at = tensor.device_mesh.get_coordinate()  # type: ignore[attr-defined]
    if at is None:
        return False
    return all(here == 0 or not kind.is_replicate() for here, kind in zip(at, placements, strict=True))


def _arrived(tensor: Tensor) -> Tensor:
    # What a collective of the model's own has not finished writing.
    wait = getattr(tensor, "trigger_wait", None)
    return tensor if wait is None else wait()


def first_tensor(values: Any) -> Tensor | None:
    """Return the first output of a module: the tensor itself, or the first of a tuple or mapping."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, (tuple, list)):
        return values[0] if values and isinstance(values[0], Tensor) else None
    if hasattr(values, "values") and callable(values.values):
        first = next(iter(values.values()), None)
        return first if isinstance(first, Tensor) else None
    return None


def half_precision() -> bool:
    """Return whether this is computed in float16, whose gradients need a loss scale."""
    return any(
        torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16
        for kind in ("cuda", "cpu")
    )
