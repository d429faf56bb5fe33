"""Tensors of which each process holds a piece and knows it: ``torch.distributed.tensor.DTensor``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

__all__ = ["is_sharded", "on_own_piece", "own_features"]


def is_sharded(tensor: Any) -> bool:
    """Return whether ``tensor`` is a DTensor. Where nothing has imported them there is none."""
    home = sys.modules.get("torch.distributed.tensor")
    return home is not None and isinstance(tensor, home.DTensor)


def on_own_piece(tensor: Any, change: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Any:
    """Return a DTensor whose piece in this process is changed.

    Parameters
    ----------
    tensor : DTensor
        What to change.
    change : callable
        Is given this process's piece and the piece's coordinates, which are empty where every process holds all of the tensor.

    Raises
    ------
    TypeError
        When the pieces are parts of a sum: their sum is not there yet.
    """
    if any(placement.is_partial() for placement in tensor.placements):
        raise TypeError("its sum over the processes is not there yet")
    where = tensor.device_mesh.get_coordinate() or ()
    cut = tuple(at for at, placement in zip(where, tensor.placements, strict=True) if placement.is_shard())
    changed = change(tensor.to_local(), cut)
    return type(tensor).from_local(
        changed,
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )


def own_features(tensor: Any, vector: Tensor) -> Tensor:
    """Return what of ``vector`` ``[features]`` belongs to this process's piece of a DTensor ``[..., features]``; nothing is sent."""
    home = sys.modules["torch.distributed.tensor"]
    last = tensor.ndim - 1
    cut = [each if each.is_shard(last) else home.Replicate() for each in tensor.placements]
    if not any(each.is_shard() for each in cut):
        return vector
    whole = type(tensor).from_local(
        vector, tensor.device_mesh, [home.Replicate()] * len(cut), run_check=False
    )
    pieces = [home.Shard(0) if each.is_shard() else each for each in cut]
    own: Tensor = whole.redistribute(placements=pieces).to_local()
    return own
