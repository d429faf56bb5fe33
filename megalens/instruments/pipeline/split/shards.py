"""Which dimension of a weight is cut over tensor-parallel processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement, Shard

from .errors import SplitError

__all__ = ["buckets_of", "cut_dimension", "local_of", "pieces_of"]

_BUCKET_BYTES = 1 << 25


def cut_dimension(name: str, tensor: Tensor) -> int:
    """Return the dimension that is cut, of a DTensor by its placements and else by Megatron's attributes; -1 where every process has the whole.

    Raises
    ------
    SplitError
        Naming the weight, for cuts of another kind.
    """
    if isinstance(tensor, DTensor):
        cuts: list[tuple[int, Any]] = [
            (at, each) for at, each in enumerate(tensor.placements) if not each.is_replicate()
        ]
        if not cuts:
            return -1
        if len(cuts) > 1 or type(cuts[0][1]) is not Shard:
            raise _odd(name, f"placements {tensor.placements}")
        at, cut = cuts[0]
        if tensor.shape[cut.dim] % tensor.device_mesh.size(at):
            raise _odd(name, f"{tensor.shape[cut.dim]} rows over {tensor.device_mesh.size(at)} processes")
        return int(cut.dim) % tensor.dim()
    if not getattr(tensor, "tensor_model_parallel", False):
        return -1
    if getattr(tensor, "partition_stride", 1) != 1:
        raise _odd(name, f"partition_stride {getattr(tensor, 'partition_stride', None)}")
    dimension = getattr(tensor, "partition_dim", -1)
    return int(dimension) % tensor.dim() if dimension >= 0 else -1


def local_of(tensor: Tensor, placements: tuple[Placement, ...] | None = None) -> Tensor:
    """Return what this process has of a tensor, as one that shares its memory; of a gradient that other processes have a part of, their sum."""
    if not isinstance(tensor, DTensor):
        return tensor.detach()
    if placements is not None and tensor.placements != placements:
        tensor = tensor.redistribute(placements=placements)
    local: Tensor = tensor.to_local()
    return local.detach()


def buckets_of(tensors: Iterable[tuple[int, Tensor]]) -> Iterator[list[int]]:
    """Yield the numbers of tensors that travel together: one after the other, of one dtype, 32 MiB at most unless one alone is larger."""
    held: list[int] = []
    dtype: torch.dtype | None = None
    nbytes = 0
    for number, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if held and (tensor.dtype != dtype or nbytes + size > _BUCKET_BYTES):
            yield held
            held, nbytes = [], 0
        held.append(number)
        dtype, nbytes = tensor.dtype, nbytes + size
    if held:
        yield held


def pieces_of(flat: Tensor, like: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each of some tensors with its piece of a flat one, in its shape."""
    first = 0
    for each in like:
        yield each, flat[first : first + each.numel()].view(each.shape)
        first += each.numel()


def _odd(name: str, got: str) -> SplitError:
    return SplitError(
        f"Weight {name} must be whole in every process or cut into equal parts along one dimension, got {got}. Use a tensor-parallel degree that divides it.",
        code="shape",
        field=name,
    )
