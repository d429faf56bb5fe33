"""Megatron-Core's attention with the sequence cut over context-parallel ranks, on the CPU.

Megatron-Core leaves this exchange to Transformer Engine, which needs a GPU. Here keys and values are gathered, which is one of the ways in which Transformer Engine does it, and
the sequence is cut as Megatron-Core cuts it: twice as many chunks as ranks, of which each rank has one from the front and the one as far from the end.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.transformer.dot_product_attention import DotProductAttention
from torch import Tensor, distributed

__all__ = ["GatheredAttention", "own_positions"]


class GatheredAttention(DotProductAttention):
    """Queries of this rank's positions, keys and values of all."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(query, _whole(key), _whole(value), *args, **kwargs)


def own_positions(length: int) -> Tensor:
    """Return which positions of a sequence are this rank's, in its order."""
    ranks = parallel_state.get_context_parallel_world_size()
    rank = parallel_state.get_context_parallel_rank()
    chunks = torch.arange(length).chunk(2 * ranks)
    return torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])


def _whole(part: Tensor) -> Tensor:
    """Return ``[sequence, …]`` in its own order from this rank's part."""
    parts = _Gathered.apply(part)
    front = [each.chunk(2)[0] for each in parts]
    back = [each.chunk(2)[1] for each in parts]
    return torch.cat([*front, *reversed(back)])


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, part: Tensor) -> Tensor:
        group = parallel_state.get_context_parallel_group()
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(group.size())]
        distributed.all_gather(parts, part.contiguous(), group)
        return torch.stack(parts)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous()
        distributed.all_reduce(gradient, group=parallel_state.get_context_parallel_group())
        return gradient[parallel_state.get_context_parallel_rank()]
