"""What the model keeps of the positions that it has read: their keys and values."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Cache", "LayerCache"]


class LayerCache:
    """Keys and values of one layer.

    Attributes
    ----------
    hidden : torch.Tensor
        Keys that the positions of this pass do not see, bool ``[B, 1, S, keys]``.
    """

    hidden: Tensor

    def __init__(self) -> None:
        self._read: tuple[Tensor, Tensor] | None = None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of ``[B, heads, S, H / heads]`` and return all of them."""
        if self._read is not None:
            key = torch.cat([self._read[0], key], dim=2)
            value = torch.cat([self._read[1], value], dim=2)
        self._read = key, value
        return key, value


class Cache:
    """Keys and values of a batch, whose rows may begin with padding.

    Parameters
    ----------
    layers : int
        Layers of the model.
    pads : torch.Tensor
        int64 ``[B]``: positions of padding before each row's first token.
    """

    def __init__(self, layers: int, pads: Tensor) -> None:
        self.layers = [LayerCache() for _ in range(layers)]
        self._pads = pads[:, None]
        self._length = 0

    def advance(self, count: int) -> Tensor:
        """Begin a pass that reads ``count`` more positions, and return their places ``[B, count]``: 0 for the
        first token of a row, and for its padding.
        """
        keys = torch.arange(self._length + count, device=self._pads.device)
        queries = keys[self._length :, None]
        self._length += count
        # Padding sees itself: a row of probabilities of nothing would be NaN, in whatever it is multiplied
        # with.
        padding = (keys < self._pads)[:, None, :] & (keys != queries)
        hidden = ((keys > queries) | padding)[:, None]
        for layer in self.layers:
            layer.hidden = hidden
        return (queries.T - self._pads).clamp(min=0)
