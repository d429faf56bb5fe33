"""Which positions of a forward pass are reported, where a model computes some again."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Window"]


@dataclass(frozen=True, eq=False)
class Window:
    """Positions to take of every tensor of a pass, by sample.

    Attributes
    ----------
    positions : torch.Tensor
        int64 ``[B, n]``: the positions to report, in order.
    keys : torch.Tensor or None
        int64 ``[B, k]``: the keys to report of attention; all, as they are, when None.
    """

    positions: Tensor
    keys: Tensor | None = None

    def of(self, data: Tensor) -> Tensor:
        """Return ``[B, n, *]`` of ``[B, S, *]``, and of attention probabilities ``[B, heads, S, S]`` what is ``[B, heads, n, k]``."""
        if data.ndim != 4:
            return data.take_along_dim(self.positions.view(*self.positions.shape, *[1] * (data.ndim - 2)), 1)
        data = data.take_along_dim(self.positions[:, None, :, None], 2)
        return data if self.keys is None else data.take_along_dim(self.keys[:, None, None, :], 3)
