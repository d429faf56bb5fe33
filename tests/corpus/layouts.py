"""Ways in which one layer's features are read as queries, keys and values: each gives them as ``[B, H, S, d]``,
keys and values of groups once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .parts import HEADS, split_heads

Parts = Sequence[Tensor]


def thirds(x: Tensor) -> Parts:
    """q, k and v are thirds of one layer, as nanoGPT cuts them."""
    return [split_heads(each) for each in x.chunk(3, -1)]


def per_head(x: Tensor) -> Parts:
    """Each head has its (q k v) beside one another: reshape(B, S, H, 3d).chunk(3, -1), as tutorials write it."""
    return x.reshape(*x.shape[:2], HEADS, -1).permute(0, 2, 1, 3).chunk(3, dim=-1)


def h_d_qkv(x: Tensor) -> Parts:
    """The three are the innermost axis: view(B, S, H, d, 3)."""
    return x.view(*x.shape[:2], HEADS, -1, 3).permute(4, 0, 2, 1, 3).unbind(0)


def qkv_h_d(x: Tensor) -> Parts:
    """The three are the outermost axis, as vision transformers have it."""
    q, k, v = x.reshape(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    return q, k, v


def qkv_d_h(x: Tensor) -> Parts:
    """The heads are the innermost axis: view(B, S, 3, d, H)."""
    return x.view(*x.shape[:2], 3, -1, HEADS).permute(2, 0, 4, 1, 3).unbind(0)


def v_first(x: Tensor) -> Parts:
    """Thirds in another order: values, keys, queries."""
    v, k, q = (split_heads(each) for each in x.split(x.shape[-1] // 3, dim=2))
    return q, k, v


def blocks(x: Tensor) -> Parts:
    """Two blocks, each with its queries, values and keys, as in CodeGen."""
    parts = x.view(*x.shape[:2], 2, 3, HEADS // 2, -1)
    q, v, k = (parts[:, :, :, i].flatten(2, 3).transpose(1, 2) for i in range(3))
    return q, k, v


def per_group(x: Tensor) -> Parts:
    """Of each of two groups its queries, its key, its value, as litgpt has them."""
    parts = x.view(*x.shape[:2], 2, HEADS // 2 + 2, -1).permute(0, 2, 3, 1, 4)
    return [each.flatten(1, 2) for each in parts.split((HEADS // 2, 1, 1), dim=2)]


def grouped_thirds(x: Tensor) -> Parts:
    """All queries, then the fewer keys, then the fewer values."""
    few = x.shape[-1] // 4
    q, k, v = x.split([2 * few, few, few], -1)
    return split_heads(q), split_heads(k, 2), split_heads(v, 2)


def one_key(x: Tensor) -> Parts:
    """All queries, then the only key, then the only value."""
    head = x.shape[-1] // (HEADS + 2)
    q, k, v = x.split([HEADS * head, head, head], -1)
    return split_heads(q), k.unsqueeze(1), v.unsqueeze(1)


def by_writing(x: Tensor) -> Parts:
    """Copied into memory that was there before, head by head."""
    made = torch.empty(3, x.shape[0], HEADS, x.shape[1], x.shape[2] // 3 // HEADS)
    for i, part in enumerate(x.chunk(3, -1)):
        for head, features in enumerate(part.chunk(HEADS, -1)):
            made[i, :, head] = features
    q, k, v = made
    return q, k, v


def by_index(x: Tensor) -> Parts:
    """Picked in the order of thirds from a layer that has them per head."""
    order = torch.arange(x.shape[-1]).view(HEADS, 3, -1).transpose(0, 1).flatten()
    return thirds(x.index_select(-1, order))


LAYOUTS: dict[Callable[[Tensor], Parts], float] = {
    **dict.fromkeys((thirds, per_head, h_d_qkv, qkv_h_d, qkv_d_h, v_first, blocks, by_writing, by_index), 3),
    per_group: 2,
    grouped_thirds: 2,
    one_key: 1.5,
}
"""With the features of the layer, in those of the model."""
