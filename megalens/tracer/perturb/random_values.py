"""Random numbers that belong to one tensor of one micro-batch, and to nothing else."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

__all__ = ["RandomValues"]

_BITS = 31


class RandomValues:
    """Draws for one tensor. The same key gives the same numbers; the global random state is neither read nor changed.

    Parameters
    ----------
    key : tuple
        Whatever the numbers depend on, made of integers and texts.
    like : torch.Tensor
        What they are drawn for: its shape and device.
    """

    def __init__(self, key: tuple[object, ...], like: Tensor) -> None:
        digest = hashlib.blake2b(repr(key).encode(), digest_size=12).digest()
        self._shape = tuple(like.shape)
        self._device = like.device
        # Drawn in float32 for narrower types, so that noise is rounded once and not twice.
        self._dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        # One for each tensor: a forward pass and the recomputation of another may run in two threads.
        self._generator = torch.Generator(device=like.device)
        self._generator.manual_seed(int.from_bytes(digest[:8], "little"))
        self._rest = int.from_bytes(digest[8:], "little") / 2**32

    def normal(self) -> Tensor:
        """Return N(0, 1)."""
        return self._room(self._dtype).normal_(generator=self._generator)

    def uniform(self, low: float, high: float) -> Tensor:
        """Return numbers from ``low`` to ``high``."""
        return self._room(self._dtype).uniform_(low, high, generator=self._generator)

    def whole(self, below: int, dtype: torch.dtype) -> Tensor:
        """Return whole numbers from 0 to ``below`` - 1."""
        return self._room(dtype).random_(0, below, generator=self._generator)

    def chosen(self, rate: float) -> Tensor:
        """Return booleans of which a share ``rate`` is true.

        A rate that is no multiple of 2⁻³¹ is rounded up or down at random, so that it is met on average however small it is. (Floats of 32 bits, the usual way, cannot tell rates
        below 6e-8 apart.)
        """
        bound = int(rate * 2**_BITS + self._rest)
        if bound >= 2**_BITS:
            return torch.ones(self._shape, dtype=torch.bool, device=self._device)
        return self._room(torch.int32).random_(generator=self._generator) < bound

    def _room(self, dtype: torch.dtype) -> Tensor:
        # Contiguous whatever the tensor is, so that numbers depend on its shape alone.
        return torch.empty(self._shape, dtype=dtype, device=self._device)
