"""Numbers that stand for features, moved about as the features are.

Beside a tensor ``[..., features]`` goes a tensor of whole numbers of the same shape, which says of each
element which feature of which projection it is. Along batch and positions it has stride 0, so that a view of
it costs nothing; where an operation copies, only those axes are copied along which it differs. Layers of one
kind move their features alike, so that what was once made of a layout is looked up from then on.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from . import watch_operations as op

NOTHING = -1
"""Stands for what is no feature of a projection: padding, a constant."""
SHIFT = 24
FEATURE = (1 << SHIFT) - 1
_MOST = 1 << 22


class TooLarge(Exception):
    """Says that following an operation would take more memory than it is worth."""


class FeatureLayout:
    """Which features lie where: ``ids`` has for each element the number of its feature, and above ``SHIFT``
    which of the projections it is of, counted from 0.
    """

    def __init__(self, ids: Tensor, plain: bool = False) -> None:
        self.ids, self.plain = ids, plain
        """``plain`` where every element is a feature of the first projection."""

    @functools.cached_property
    def whole(self) -> bool:
        """Whether these are all features of one projection in their order, along the last axis."""
        width = self.ids.shape[-1] if self.ids.ndim else 0
        (small,) = compact([self.ids], spare=(self.ids.ndim - 1,)) if width else (self.ids,)
        return small.numel() == width and bool((small.numpy().ravel() == np.arange(width)).all())

    @functools.cached_property
    def rows(self) -> Any:
        """The different rows of features along the last axis, in their order."""
        return _different(_flat([self.ids]))[:, 0]

    def of(self, numbers: tuple[int, ...]) -> Tensor:
        """Return the ids with other numbers of the projections."""
        if numbers == tuple(range(len(numbers))):
            return self.ids
        (small,) = compact([self.ids])
        numbered: Tensor = _numbered(small, torch.tensor((*numbers, NOTHING)))
        return numbered.expand(self.ids.shape)


class Plane(NamedTuple):
    """Features in a tensor: those of the projections with the numbers ``owners``, in ascending order."""

    owners: tuple[int, ...]
    layout: FeatureLayout

    @property
    def shape(self) -> torch.Size:
        return self.layout.ids.shape

    def same(self, other: Plane) -> bool:
        """Return whether two tensors have the same features in the same places."""
        one, two = self.layout.ids, other.layout.ids
        if self.owners != other.owners or one.shape != two.shape:
            return False
        if self.layout is other.layout:
            return True
        a, b = compact([one, two])
        return np.array_equal(a.numpy(), b.numpy())


class FeatureLayouts:
    """The layouts of one watched pass, and what was made of them."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def fresh(self, number: int, shape: Sequence[int], axis: int = -1) -> Plane:
        """Return all features of projection ``number``, which lie along ``axis``."""
        key = tuple(shape), axis
        if (layout := self._known.get(key)) is None:
            strides = [0] * len(shape)
            strides[axis] = 1
            ids = torch.arange(shape[axis], device="cpu").as_strided(tuple(shape), strides)
            layout = self._known[key] = FeatureLayout(ids, plain=True)
        return Plane((number,), layout)

    def made(
        self,
        key: Hashable,
        planes: Sequence[Plane],
        make: Callable[[list[Tensor]], Sequence[Tensor]],
        moves: bool = False,
    ) -> list[Plane]:
        """Return what ``make`` makes of the ids of ``planes``.

        ``key`` tells it from all else, if not None; ``moves`` says that it adds nothing that is no feature.
        """
        owners = planes[0].owners
        if len(planes) > 1:
            owners = tuple(sorted({owner for plane in planes for owner in plane.owners}))
            where = tuple([(plane.layout, tuple(map(owners.index, plane.owners))) for plane in planes])
        else:
            where = ((planes[0].layout, tuple(range(len(owners)))),)
        known = self._known.get((key, where)) if key is not None else None
        if known is None:
            plain = moves and planes[0].layout.plain
            ids = make([layout.of(numbers) for layout, numbers in where])
            known = [
                (FeatureLayout(each, plain=True), (0,)) if plain and each.numel() else _layout(each)
                for each in ids
            ]
            if key is not None:
                self._known[key, where] = known
        return [Plane(tuple([owners[each] for each in present]), layout) for layout, present in known]

    def expanded(self, plane: Plane, shape: torch.Size) -> Plane:
        """Return ids in a larger shape."""
        if plane.shape == shape:
            return plane
        return self.made(("expand", shape), [plane], lambda ids: [ids[0].expand(shape)], True)[0]

    def joined(self, pieces: Sequence[tuple[Plane | None, Tensor]], axis: int, new: bool) -> Plane:
        """Return what ``torch.cat`` along ``axis`` gives, or ``stack`` where that is ``new``.

        A piece without a plane, of which the tensor is given, has no features.
        """

        def make(ids: list[Tensor]) -> list[Tensor]:
            rest = iter(ids)
            each = [nothing(like.shape) if plane is None else next(rest) for plane, like in pieces]
            return [_join([ids.unsqueeze(axis) for ids in each] if new else each, axis)]

        key = "join", axis, new, tuple(like.shape if plane is None else None for plane, like in pieces)
        return self.made(key, [plane for plane, _ in pieces if plane is not None], make)[0]

    def of_rows(self, number: int, plane: Plane, width: int) -> Plane:
        """Return ``width`` features for each different row along the last axis, one row's after another's."""

        def make(ids: list[Tensor]) -> list[Tensor]:
            (small,) = compact(ids, spare=(ids[0].ndim - 1,))
            known: dict[bytes, int] = {}
            flat = small.numpy().reshape(-1, small.shape[-1])
            rows = torch.tensor([known.setdefault(row.tobytes(), len(known)) for row in flat])
            features = rows.view(*small.shape[:-1], 1) * width + torch.arange(width)
            return [features.expand(*ids[0].shape[:-1], width)]

        return Plane((number,), self.made(("rows", width), [plane], make)[0].layout)

    def moved(
        self, name: str, func: Any, args: Any, kwargs: Any, plane: Plane, outputs: Sequence[Tensor]
    ) -> list[Plane]:
        """Return what an operation that moves features makes of ids, one for each of its outputs."""
        shape = outputs[0].shape
        key = ("view", shape) if name in op.RESHAPES else _key(func, args[1:], kwargs)
        return self.made(key, [plane], lambda ids: _moves(name, func, args, kwargs, ids[0], shape), True)


def _layout(ids: Tensor) -> tuple[FeatureLayout, tuple[int, ...]]:
    """Return the layout of ids, and the numbers of the projections that are in it."""
    (small,) = compact([ids])
    numbers = small.numpy() >> SHIFT
    # Nearly always there is one, which is found in a fifth of the time.
    one = numbers.size and numbers.flat[0]
    found = {int(one)} if numbers.size and (numbers == one).all() else {*np.unique(numbers).tolist()}
    present = tuple(sorted(found - {NOTHING}))
    if present != tuple(range(len(present))):
        table = torch.full((present[-1] + 2,), NOTHING)
        table[torch.tensor(present)] = torch.arange(len(present))
        ids = _numbered(small, table).expand(ids.shape)
    return FeatureLayout(ids), present


def _numbered(ids: Any, table: Any) -> Any:
    """Return ids with the numbers of projections of a table, of which the last is ``NOTHING``."""
    return (table[ids >> SHIFT] << SHIFT) | (ids & FEATURE)


def _key(func: Any, args: Any, kwargs: Any) -> Hashable:
    """Return what tells one call of a function from others; None where tensors decide."""
    try:
        key = (
            func,
            *(tuple(each) if isinstance(each, list) else each for each in args),
            *((name, tuple(each) if isinstance(each, list) else each) for name, each in kwargs.items()),
        )
        hash(key)
    except TypeError:
        return None
    return None if any(isinstance(each, Tensor) for each in key) else key


def compact(ids: Sequence[Tensor], spare: Sequence[int] = ()) -> list[Tensor]:
    """Return tensors without the axes along which none of them differs; their size is 1.

    They have one shape, but for the axes to ``spare``.
    """
    strides = [each.stride() for each in ids]
    alike = [
        axis
        for axis, size in enumerate(ids[0].shape)
        if size > 1 and axis not in spare and not any(each[axis] for each in strides)
    ]
    if not alike:
        return list(ids)
    return [
        each.as_strided([1 if axis in alike else size for axis, size in enumerate(each.shape)], stride)
        for each, stride in zip(ids, strides, strict=True)
    ]


def _reshape(ids: Tensor, shape: Sequence[int]) -> Tensor:
    """Return ``ids`` in another shape; an error of ``view`` would take longer than to look first."""
    old, strides = ids.shape, ids.stride()
    count, axis = 1, len(old) - 1
    while axis >= 0 and strides[axis] == count:
        count *= old[axis]
        axis -= 1
    before, after = (list(itertools.accumulate(sizes, operator.mul)) for sizes in (old, shape))
    if not ids.numel() or (not any(strides[: axis + 1]) and count in (1, *(ids.numel() // c for c in after))):
        return ids.reshape(shape)
    # Axes that become others together are those between two ends that both shapes have.
    ends = sorted({*before} & {*after})
    differs = {
        bisect.bisect_left(ends, end)
        for end, size, stride in zip(before, old, strides, strict=True)
        if stride and size > 1
    }
    kept, sizes = (
        [size if bisect.bisect_left(ends, end) in differs else 1 for size, end in zip(of, at, strict=True)]
        for of, at in ((old, before), (shape, after))
    )
    small = ids.as_strided(kept, strides)
    if not small.is_contiguous():
        _bounded(math.prod(sizes))
    return small.reshape(sizes).expand(tuple(shape))


def _join(pieces: Sequence[Tensor], axis: int) -> Tensor:
    """Return ``torch.cat`` of ids of shapes that differ along ``axis`` alone."""
    pieces = [piece for piece in pieces if piece.numel()] or pieces
    axis %= pieces[0].ndim
    shape = list(pieces[0].shape)
    shape[axis] = sum(piece.shape[axis] for piece in pieces)
    made = compact(pieces, spare=(axis,))
    _bounded(sum(each.numel() for each in made))
    return torch.cat(made, axis).expand(tuple(shape))


def _moves(name: str, func: Any, args: Any, kwargs: Any, ids: Tensor, shape: torch.Size) -> Sequence[Tensor]:
    if name in op.RESHAPES:
        if ids.numel() != shape.numel():
            raise TooLarge
        return [_reshape(ids, shape)]
    rest = _on_host(args[1:])
    if name not in op.COPIES:
        made = func(ids, *rest, **kwargs)
        return [made] if isinstance(made, Tensor) else list(made)
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


def rows(planes: Sequence[Plane]) -> Any:
    """Return the ids of the different rows of features along the last axis, ``[rows, planes, features]``, in
    their order.

    Raises ``TooLarge`` when there are too many to look at.
    """
    if len(planes) == 1:
        return _numbered(planes[0].layout.rows[:, None], np.array((*planes[0].owners, NOTHING)))
    return _different(_flat([plane.layout.of(plane.owners) for plane in planes]))


def _flat(ids: Sequence[Tensor]) -> Any:
    made = compact(ids, spare=(ids[0].ndim - 1,))
    _bounded(made[0].numel() * len(made))
    return np.stack([each.numpy().reshape(-1, each.shape[-1]) for each in made], 1)


def _different(stacked: Any) -> Any:
    """Return the different rows of several that hold a feature."""
    if not stacked.size:
        return stacked
    first = {row.tobytes(): number for number, row in reversed(list(enumerate(stacked)))}
    picked = stacked[sorted(first.values())]
    return picked[(picked >= 0).any((1, 2))]


def _bounded(count: int) -> None:
    if count > _MOST:
        raise TooLarge
