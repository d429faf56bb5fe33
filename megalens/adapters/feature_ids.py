"""Numbers that stand for features, moved about as the features are.

Beside a tensor ``[..., features]`` goes a tensor of whole numbers of the same shape, which says of each
element which feature of which projection it is. Along batch and positions it has stride 0, so that a view of
it costs nothing; where an operation copies, only those axes are copied along which it differs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import watch_operations as op

NOTHING = -1
"""Stands for what is no feature of a projection: padding, a constant."""
_SHIFT = 24
_MOST = 1 << 22


class TooLarge(Exception):
    """Says that following an operation would take more memory than it is worth."""


def fresh(number: int, shape: Sequence[int], axis: int = -1) -> Tensor:
    """Return the ids of all features of projection ``number``, which lie along ``axis``."""
    width, first = shape[axis], number << _SHIFT
    strides = [0] * len(shape)
    strides[axis] = 1
    return torch.arange(first, first + width, device="cpu").as_strided(tuple(shape), strides)


def projection_of(ids: Tensor) -> Tensor:
    """Return the number of the projection of each id, negative for ``NOTHING``."""
    return ids >> _SHIFT


def feature_of(ids: Tensor) -> Tensor:
    return ids & ((1 << _SHIFT) - 1)


def projections_in(ids: Tensor) -> frozenset[int]:
    """Return the numbers of the projections of which there are features."""
    (small,) = compact([ids])
    numbers = small.numpy() >> _SHIFT
    # Nearly always there is one, which is found in a fifth of the time.
    one = numbers.size and numbers.flat[0]
    found = {int(one)} if numbers.size and (numbers == one).all() else {*np.unique(numbers).tolist()}
    return frozenset(found - {NOTHING})


def compact(ids: Sequence[Tensor], spare: Sequence[int] = ()) -> list[Tensor]:
    """Return tensors of one shape without the axes along which none of them differs; their size is 1."""
    shape, strides = ids[0].shape, [each.stride() for each in ids]
    small = [
        1 if axis not in spare and size > 1 and not any(each[axis] for each in strides) else size
        for axis, size in enumerate(shape)
    ]
    if small == list(shape):
        return list(ids)
    return [each.as_strided(small, stride) for each, stride in zip(ids, strides, strict=True)]


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of ids say the same."""
    if one is other or one.shape != other.shape:
        return one is other
    a, b = compact([one, other])
    return np.array_equal(a.numpy(), b.numpy())


def is_whole(ids: Tensor, number: int, width: int) -> bool:
    """Return whether ``ids`` are all features of a projection in their order, along the last axis."""
    if ids.ndim == 0 or ids.shape[-1] != width:
        return False
    (small,) = compact([ids], spare=(ids.ndim - 1,))
    first = number << _SHIFT
    return small.numel() == width and bool((small.numpy().ravel() == np.arange(first, first + width)).all())


def reshape(ids: Tensor, shape: Sequence[int]) -> Tensor:
    """Return ``ids`` in another shape; an error of ``view`` would take longer than to look first."""
    kept, sizes, strides = list(ids.shape), list(shape), ids.stride()
    for old, new in _groups(tuple(ids.shape), tuple(shape)):
        if all(strides[axis] == 0 or ids.shape[axis] == 1 for axis in old):
            for axes, of in ((old, kept), (new, sizes)):
                for axis in axes:
                    of[axis] = 1
    small = ids.as_strided(kept, strides)
    if not small.is_contiguous():
        _bounded(math.prod(sizes))
    return small.reshape(sizes).expand(tuple(shape))


@functools.lru_cache
def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Return which axes of one shape become which axes of another."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        here: tuple[list[int], list[int]] = ([], [])
        a = b = 1
        while True:
            if (a < b or not here[0]) and i < len(old):
                a *= old[i]
                here[0].append(i)
                i += 1
            elif (b < a or not here[1]) and j < len(new):
                b *= new[j]
                here[1].append(j)
                j += 1
            else:
                break
        groups.append(here)
    return groups


def join(pieces: Sequence[Tensor], axis: int) -> Tensor:
    """Return ``torch.cat`` of ids of shapes that differ along ``axis`` alone."""
    pieces = [piece for piece in pieces if piece.numel()] or pieces
    axis %= pieces[0].ndim
    shape = list(pieces[0].shape)
    shape[axis] = sum(piece.shape[axis] for piece in pieces)
    strides = [piece.stride() for piece in pieces]
    alike = [other for other in range(len(shape)) if other != axis and not any(s[other] for s in strides)]
    made = [
        piece.as_strided([1 if a in alike else size for a, size in enumerate(piece.shape)], stride)
        for piece, stride in zip(pieces, strides, strict=True)
    ]
    _bounded(sum(each.numel() for each in made))
    return torch.cat(made, axis).expand(tuple(shape))


def moves(
    name: str, func: Any, args: Any, kwargs: Any, ids: Tensor, outputs: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Return what an operation makes of ids, one for each of its outputs."""
    if name in op.RESHAPES:
        if ids.numel() != outputs[0].numel():
            raise TooLarge
        return [reshape(ids, outputs[0].shape)]
    rest = _on_host(args[1:])
    if name not in op.COPIES:
        made = func(ids, *rest, **kwargs)
        return [made] if isinstance(made, Tensor) else list(made)
    shape = outputs[0].shape
    axes = _axes(name, args, ids.ndim)
    if axes is None:
        _bounded(max(shape.numel(), ids.numel()))
        return [func(ids, *rest, **_on_host(kwargs))]
    # Along axes where it is the same everywhere nothing has to be moved.
    alike = [axis for axis in range(ids.ndim) if ids.stride(axis) == 0 and ids.shape[axis] > 1]
    (small,) = compact([ids], spare=[axis for axis in axes if axis not in alike])
    if not set(axes) <= set(alike):
        sizes = [1 if axis in alike else size for axis, size in enumerate(shape)]
        _bounded(max(math.prod(sizes), small.numel()))
        small = func(small, *rest, **kwargs)
    for axis in alike:
        small = small.narrow(axis, 0, 1)
    return [small.expand(shape)]


def _axes(name: str, args: Any, ndim: int) -> list[int] | None:
    """Return along which axes an operation moves data; None where that is not told."""
    if name == "repeat":
        return list(range(ndim)) if len(args[1]) == ndim else None
    axes = (
        args[1] if name in ("flip", "index_select") else args[2] if name == "roll" and len(args) > 2 else ()
    )
    axes = [axes] if isinstance(axes, int) else axes
    return [axis % ndim for axis in axes] or None


def _on_host(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu")
    if isinstance(value, dict):
        return {key: _on_host(each) for key, each in value.items()}
    return type(value)(map(_on_host, value)) if isinstance(value, (list, tuple)) else value


def nothing(shape: Sequence[int]) -> Tensor:
    return torch.full((1,) * len(shape), NOTHING, device="cpu").expand(tuple(shape))


def filled(shape: Sequence[int]) -> Tensor:
    """Return new memory full of ``NOTHING``."""
    _bounded(math.prod(shape))
    return torch.full(tuple(shape), NOTHING, device="cpu")


def rows(planes: Sequence[Tensor], axis: int = -1) -> Tensor:
    """Return the different rows of features along ``axis``, ``[rows, planes, features]``, in their order.

    Raises ``TooLarge`` when there are too many to look at.
    """
    if axis != -1:
        planes = [each.movedim(axis, -1) for each in planes]
    made = compact(planes, spare=(planes[0].ndim - 1,))
    _bounded(made[0].numel() * len(made))
    stacked = np.stack([each.numpy().reshape(-1, each.shape[-1]) for each in made], 1)
    if not stacked.size:
        return torch.from_numpy(stacked)
    first = {row.tobytes(): number for number, row in reversed(list(enumerate(stacked)))}
    picked = stacked[sorted(first.values())]
    return torch.from_numpy(picked[(picked >= 0).any((1, 2))])


def row_numbers(ids: Tensor) -> Tensor | None:
    """Return for each row along the last axis which of the different rows it is, ``[..., 1]``."""
    (small,) = compact([ids], spare=(ids.ndim - 1,))
    if small.numel() > _MOST:
        return None
    known: dict[bytes, int] = {}
    flat = small.numpy().reshape(-1, small.shape[-1])
    numbers = [known.setdefault(row.tobytes(), len(known)) for row in flat]
    return torch.tensor(numbers).view(*small.shape[:-1], 1).expand(*ids.shape[:-1], 1)


def _bounded(count: int) -> None:
    if count > _MOST:
        raise TooLarge
