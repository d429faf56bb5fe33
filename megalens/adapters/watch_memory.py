"""What is known of the tensors of a watched pass, by where they lie in memory."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from . import feature_ids as ids_of
from .watch_trail import Trail, merged

Trails = dict[tuple[Any, ...], Trail]
"""What is known of the tensors that lie in one piece of memory, by where in it they lie."""


class Memory:
    """Trails of tensors. A view of a tensor, or what is written into it, lies in the same storage."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        # A weak reference keeps an address from being given to another storage.
        self._storages: dict[Any, Trails] = {}
        self._purge_at = 4096

    def of(self, tensor: Any) -> Trail | None:
        """Return what is known of a tensor, None where nothing is."""
        place = self._storages.get(_address(tensor))
        trail = None if place is None else place.get(geometry(tensor)) or self._assembled(place, tensor)
        if trail is None and isinstance(tensor, nn.Parameter):
            return Trail(weight=True)
        return trail

    def _assembled(self, place: Trails, tensor: Tensor) -> Trail | None:
        """Return what is known of a tensor of which pieces were written one by one."""
        own = geometry(tensor)
        pieces = {
            box: trail
            for each, trail in place.items()
            if trail.planes and (box := _box(own, each)) is not None
        }
        if not pieces or not tensor.ndim:
            return None
        planes = []
        try:
            for number in range(max(len(trail.planes) for trail in pieces.values())):
                placed = [
                    (_placed(trail.planes[number], box), box)
                    for box, trail in pieces.items()
                    if number < len(trail.planes)
                ]
                kept = [
                    axis
                    for axis, size in enumerate(tensor.shape)
                    if any(plane.stride(axis) or box[axis][:2] != (0, size) for plane, box in placed)
                ]
                whole = ids_of.filled([size if axis in kept else 1 for axis, size in enumerate(tensor.shape)])
                for ids, box in placed:
                    into = whole
                    for axis, (start, end, _) in enumerate(box):
                        if axis in kept:
                            into = into.narrow(axis, start, end - start)
                        else:
                            ids = ids.narrow(axis, 0, 1)
                    into.copy_(ids)
                planes.append(whole.expand(tensor.shape))
        except ids_of.TooLarge:
            return None
        trail = place[own] = merged(list(pieces.values()), tuple(planes))
        return trail

    def put(self, tensor: Tensor, trail: Trail | None) -> None:
        """Keep what is known of a tensor; None where nothing is any more."""
        address = _address(tensor)
        if address is None or (trail is None and address not in self._storages):
            return
        place = self._storages.setdefault(address, {})
        if trail is None:
            place.pop(geometry(tensor), None)
        else:
            place[geometry(tensor)] = trail
        self._purge()

    def key(self, tensor: Any) -> Any:
        """Return what tells one tensor from all others of this pass: where it lies, and in what shape."""
        address = _address(tensor)
        if address is None:
            return None
        self._storages.setdefault(address, {})
        return address, geometry(tensor)

    def _purge(self) -> None:
        if len(self._storages) > self._purge_at:
            self._storages = {key: place for key, place in self._storages.items() if not key.expired()}
            self._purge_at = 2 * len(self._storages) + 4096

    def overwritten(self, tensor: Any) -> None:
        """Forget what lies in the same memory in another shape: it has changed too."""
        address, own = _address(tensor), geometry(tensor)
        place = self._storages.get(address, {})
        if len(place) > 1:
            self._storages[address] = {
                each: trail for each, trail in place.items() if each == own or _apart(own, each)
            }


def _address(tensor: Any) -> Any:
    if not isinstance(tensor, Tensor):
        return None
    try:
        return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
    except (NotImplementedError, RuntimeError):
        return None


def geometry(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


Box = tuple[tuple[int, int, int | None], ...]
"""Of each axis of a tensor, where a piece of it begins and ends, and which axis of the piece that is."""


def _box(outer: tuple[Any, ...], inner: tuple[Any, ...]) -> Box | None:
    """Return where in a tensor another lies; None where it is no slice of it."""
    (offset, shape, strides), (start, sizes, others) = outer, inner
    axes = {others[axis]: axis for axis, size in enumerate(sizes) if size > 1}
    rest = start - offset
    if sizes == shape or rest < 0 or len(axes) < sum(size > 1 for size in sizes):
        return None
    box: list[tuple[int, int, int | None]] = [(0, 1, None)] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda axis: -strides[axis]):
        if shape[axis] < 2:
            continue
        first, rest = divmod(rest, strides[axis]) if strides[axis] else (0, rest)
        own = axes.pop(strides[axis], None)
        end = first + (1 if own is None else sizes[own])
        if end > shape[axis]:
            return None
        box[axis] = (first, end, own)
    return None if rest or axes else tuple(box)


def _placed(ids: Tensor, box: Box) -> Tensor:
    """Return the ids of a piece with the axes of the tensor in which it lies."""
    order = [own for _, _, own in box if own is not None]
    for axis in range(ids.ndim):
        if axis not in order:
            ids = ids.narrow(axis, 0, 1)
    ids = ids.permute(*order, *(axis for axis in range(ids.ndim) if axis not in order))
    strides, made = ids.stride(), iter(range(len(order)))
    at = [None if own is None else next(made) for _, _, own in box]
    return ids.as_strided(
        [end - start if axis is not None else 1 for (start, end, _), axis in zip(box, at, strict=True)],
        [strides[axis] if axis is not None else 0 for axis in at],
    )


def _apart(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two slices of one tensor have no element in common, as far as can be told."""
    if one[2] != other[2] or len(one[1]) != len(other[1]):
        return False
    rest = other[0] - one[0]
    sizes, rest = (one[1] if rest >= 0 else other[1]), abs(rest)
    for axis in sorted(range(len(sizes)), key=lambda axis: -one[2][axis]):
        first, rest = divmod(rest, one[2][axis]) if one[2][axis] else (0, rest)
        if first >= sizes[axis]:
            return True
    return False
