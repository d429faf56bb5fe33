"""How one tensor that holds several is cut into its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..tracer import TracerError
from .sizes import ModelSizes

__all__ = ["ConcatenatedParts", "GroupedParts", "KeyValueParts", "qkv_widths"]


@dataclass(frozen=True)
class ConcatenatedParts:
    """Cut ``[..., q | k | v]`` by head counts, which is right for grouped-query attention too."""

    sizes: ModelSizes

    def __call__(self, data: Tensor) -> Sequence[Tensor]:
        """Return views of the parts."""
        q, k, v = _widths(data.shape[-1], self.sizes)
        return data.narrow(-1, 0, q), data.narrow(-1, q, k), data.narrow(-1, q + k, v)


@dataclass(frozen=True)
class GroupedParts:
    """Cut ``[..., (queries of the group, key, value) x groups]``, as Megatron and GPT-NeoX lay it out."""

    sizes: ModelSizes

    def __call__(self, data: Tensor) -> Sequence[Tensor]:
        """Return views of the parts, ``[..., groups, features of a group]``."""
        q, k, _ = _widths(data.shape[-1], self.sizes)
        groups = self.sizes.kv_heads or 1
        head = k // groups
        grouped = torch.unflatten(data, -1, (groups, q // groups + 2 * head))
        return torch.split(grouped, [q // groups, head, head], dim=-1)


@dataclass(frozen=True)
class KeyValueParts:
    """Cut ``[..., (key, value) x heads]``, what latent attention makes of its compressed keys and values; the key's part that knows the position is elsewhere."""

    key: int
    value: int

    def __call__(self, data: Tensor) -> Sequence[Tensor]:
        """Return views of the parts, ``[..., heads, features of a head]``."""
        heads = torch.unflatten(data, -1, (-1, self.key + self.value))
        return torch.split(heads, [self.key, self.value], dim=-1)


def qkv_widths(size: int | None, sizes: ModelSizes) -> tuple[int | None, ...]:
    """Return the features of queries, keys and values in a fused tensor of ``size``; None each where it is not known."""
    if size is None:
        return (None, None, None)
    try:
        return _widths(size, sizes)
    except ValueError as error:
        raise TracerError(f"The fused query, key and value tensor does not fit: {error}.") from error


def _widths(size: int, sizes: ModelSizes) -> tuple[int, int, int]:
    heads = sizes.heads or 1
    groups = sizes.kv_heads or heads
    head, rest = divmod(size, heads + 2 * groups)
    if rest:
        raise ValueError(
            f"{size} features cannot be cut into {heads} query heads and twice {groups} key-value heads; set heads and kv_heads in the adapter"
        )
    return heads * head, groups * head, groups * head
