"""What an elementwise operation of several tensors does with their features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from . import feature_ids as ids_of
from . import watch_operations as op
from .watch_trail import MOST_PLANES, Product, Trail, bent, merged, owners_of_plane, together


def combined(
    call: Any, name: str, data: Sequence[Trail], featured: Sequence[Trail], others: Sequence[Any]
) -> Trail:
    """Return what is known of a result.

    Parameters
    ----------
    data, featured : sequence of Trail
        What depends on what the model was given, and of that what holds features.
    others : sequence of (torch.Tensor, Trail or None)
        Constants and weights.
    """
    first = featured[0]
    if name == "dropout":
        return first.noted(name)
    if name in op.TIMES or name == "pow":
        if len(featured) > 1:
            one, other = featured[:2]
            if len(one.planes) == len(other.planes) == 1 and ids_of.same(one.planes[0], other.planes[0]):
                return merged((one, other), one.planes).noted(
                    *(() if bent(one) or bent(other) else ("squared",))
                )
            product = Product(call, one, other)
            keep = other if bent(one) and not bent(other) else one
            return replace(
                keep,
                origins=one.origins | other.origins,
                products=(*together((one, other)), product),
            ).noted("gated")
        if len(data) > 1:
            inside = any(each.origins & first.origins for each in data if each is not first)
            both = frozenset[int]().union(*(each.origins for each in data))
            if not inside:
                product = Product(call, first, next(each for each in data if each is not first))
                return replace(first, origins=both, products=(*together(data), product)).noted("gated")
            return replace(first, origins=both).noted("normed")
        if name == "pow":
            return first.noted("pow")
        if any(tensor.is_complex() for tensor, _ in others):
            return first.noted("rotated")
        return first.noted("scaled")
    if len(featured) > 1:
        planes: list[Tensor] = []
        for plane in (plane for trail in featured for plane in trail.planes):
            if not any(ids_of.same(plane, each) for each in planes):
                planes.append(plane)
        newest = sorted(planes, key=lambda plane: max(owners_of_plane(plane), default=-1))[-MOST_PLANES:]
        joined = merged(featured, tuple(plane for plane in planes if any(plane is each for each in newest)))
        owners = {each for trail in featured for each in trail.origins}
        if len(planes) == 1:
            return joined
        return joined.noted("rotated" if len(owners) == 1 else "added")
    if len(data) > 1 or name in op.SUMS or name in op.LINEAR_UNARY or others:
        if name in op.SUMS and any(tensor.numel() > 1 for tensor, _ in others):
            first = first.noted("shifted")
        return first if len(data) == 1 else merged((first, *data), first.planes)
    return first.noted(name)


def spread(plane: Tensor, result: Tensor) -> Tensor:
    """Return ids in the shape of a result, which has an axis less where it is complex."""
    if plane.shape == result.shape:
        return plane
    if result.is_complex():
        return plane.expand(*result.shape, plane.shape[-1])
    return plane.expand(result.shape)
