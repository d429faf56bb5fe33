"""What each kind of perturbation does to a tensor: never in place, differentiable, without a sync."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...protocol import AddVector, BitFlip, Noise1, Noise2, Offset, Perturbation

FLOATS: dict[torch.dtype, torch.dtype] = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
"""Types that can be perturbed, with the integers of the same width."""

_BITS = 31


def is_sharded(tensor: Any) -> bool:
    """Return whether ``tensor`` is a DTensor. Where nothing has imported them there is none."""
    home = sys.modules.get("torch.distributed.tensor")
    return home is not None and isinstance(tensor, home.DTensor)


def on_own_piece(tensor: Any, change: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Any:
    """Return a DTensor whose piece in this process is changed.

    ``change`` takes the piece and its coordinates, which are empty where every process has all of the tensor.
    Raises ``TypeError`` when the pieces are parts of a sum, which is not complete yet.
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
    """Return the part of ``vector`` ``[features]`` for this process's piece of a DTensor; sends nothing."""
    home = sys.modules["torch.distributed.tensor"]
    last = tensor.ndim - 1
    cut = [each if each.is_shard(last) else home.Replicate() for each in tensor.placements]
    if not any(each.is_shard() for each in cut):
        return vector
    complete = type(tensor).from_local(
        vector, tensor.device_mesh, [home.Replicate()] * len(cut), run_check=False
    )
    pieces = [home.Shard(0) if each.is_shard() else each for each in cut]
    own: Tensor = complete.redistribute(placements=pieces).to_local()
    return own


class RandomValues:
    """Random numbers of the shape and on the device of ``like``, determined by ``key``.

    The global random state is neither read nor changed.
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
        return self._empty(self._dtype).normal_(generator=self._generator)

    def uniform(self, low: float, high: float) -> Tensor:
        return self._empty(self._dtype).uniform_(low, high, generator=self._generator)

    def integers(self, below: int, dtype: torch.dtype) -> Tensor:
        """Return integers from 0 to ``below`` - 1."""
        return self._empty(dtype).random_(0, below, generator=self._generator)

    def chosen(self, rate: float) -> Tensor:
        """Return booleans of which a share ``rate`` is true.

        A rate that is no multiple of 2⁻³¹ is rounded up or down at random, so that it is met on average
        however small it is. (Floats of 32 bits, the usual way, cannot tell rates below 6e-8 apart.)
        """
        bound = int(rate * 2**_BITS + self._rest)
        if bound >= 2**_BITS:
            return torch.ones(self._shape, dtype=torch.bool, device=self._device)
        return self._empty(torch.int32).random_(generator=self._generator) < bound

    def _empty(self, dtype: torch.dtype) -> Tensor:
        # Contiguous whatever the tensor is, so that numbers depend on its shape alone.
        return torch.empty(self._shape, dtype=dtype, device=self._device)


def perturbed(x: Tensor, kind: Perturbation, key: tuple[object, ...], vector: Tensor | None = None) -> Tensor:
    """Return a plain floating point tensor perturbed. NaN and infinity stay as they are, bit by bit.

    ``key`` determines the random numbers. ``vector`` ``[features]`` is what :class:`AddVector` adds to each
    position, with its coefficient. Raises ``TypeError`` or ``ValueError`` when it cannot be done to ``x``.
    """
    if x.dtype not in FLOATS or x.layout is not torch.strided:
        raise TypeError(f"a {x.layout} tensor of {x.dtype} cannot be perturbed")
    if isinstance(kind, AddVector):
        return _added(x, vector)
    return _KINDS[type(kind)](x, kind, RandomValues(key, x))


def _added(x: Tensor, vector: Tensor | None) -> Tensor:
    if vector is None or x.shape[-1:] != vector.shape:
        found = "no vector" if vector is None else f"a vector of {len(vector)} values"
        raise ValueError(f"{found} cannot be added to a tensor of shape {list(x.shape)}")
    return _where_finite(x, x + vector)


def _noise1(x: Tensor, kind: Noise1, random: RandomValues) -> Tensor:
    return _where_finite(x, torch.add(x, random.normal(), alpha=kind.coefficient))


def _noise2(x: Tensor, kind: Noise2, random: RandomValues) -> Tensor:
    return _where_finite(x, x * random.uniform(1 - kind.coefficient, 1 + kind.coefficient))


def _offset(x: Tensor, kind: Offset, random: RandomValues) -> Tensor:
    return torch.where(random.chosen(kind.fraction) & x.isfinite(), x + kind.coefficient, x)


def _bit_flip(x: Tensor, kind: BitFlip, random: RandomValues) -> Tensor:
    integers = FLOATS[x.dtype]
    bits = 8 * x.element_size()
    chosen = (random.chosen(kind.rate) & x.isfinite()).to(integers)
    if isinstance(kind.bit, str):
        flips = torch.bitwise_left_shift(chosen, random.integers(bits, integers))
    elif kind.bit < bits:
        # The highest bit alone is the lowest number of a two's complement.
        flips = chosen * (1 << kind.bit if kind.bit < bits - 1 else -(1 << kind.bit))
    else:
        raise ValueError(f"{x.dtype} has the bits 0 to {bits - 1}, and no {kind.bit}")
    # To autograd this is a copy, and the gradient passes straight through. Nobody has seen it yet, so that
    # changing it is safe.
    copy = x.clone()
    copy.detach().view(integers).bitwise_xor_(flips)
    return copy


def _where_finite(x: Tensor, changed: Tensor) -> Tensor:
    return torch.where(x.isfinite(), changed.to(x.dtype), x)


_KINDS: dict[type[Perturbation], Callable[[Tensor, Any, RandomValues], Tensor]] = {
    Noise1: _noise1,
    Noise2: _noise2,
    BitFlip: _bit_flip,
    Offset: _offset,
}
