"""What is known of the tensors of a watched pass, by where they lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from . import feature_ids as ids_of
from .watch_trail import Trail, merged

_WEIGHT = Trail(weight=True)


class Memory:
    """Trails of tensors. A view of a tensor, or what is written into it, lies in the same storage."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        # A weak reference keeps an address from being given to another storage.
        self._storages: dict[int, tuple[StorageWeakRef, dict[Any, Trail]]] = {}
        self._purge_at = 4096
        self.ids = ids_of.FeatureLayouts()

    def of(self, tensor: Tensor) -> Trail | None:
        """Return what is known of a tensor, None where nothing is."""
        known = self._storages.get(_address(tensor))
        if known is not None:
            trail = known[1].get(_geometry(tensor)) or self._assembled(known[1], tensor)
            if trail is not None:
                return trail
        return _WEIGHT if isinstance(tensor, nn.Parameter) else None

    def _assembled(self, place: dict[Any, Trail], tensor: Tensor) -> Trail | None:
        """Return what is known of a tensor of which pieces were written one by one."""
        own = _geometry(tensor)
        pieces = [
            (trail, box) for at, trail in place.items() if trail.planes and (box := _box(own, at)) is not None
        ]
        if not pieces or not tensor.ndim:
            return None
        planes = []
        try:
            for number in range(max(len(trail.planes) for trail, _ in pieces)):
                placed = [(trail.planes[number], box) for trail, box in pieces if number < len(trail.planes)]
                boxes = [box for _, box in placed]
                planes += self.ids.made(
                    None,
                    [plane for plane, _ in placed],
                    lambda ids, boxes=boxes: [_filled(ids, boxes, tensor.shape)],  # type: ignore[misc]
                )
        except ids_of.TooLarge:
            return None
        trail = place[own] = merged([trail for trail, _ in pieces], tuple(planes))
        return trail

    def put(self, tensor: Tensor, trail: Trail | None) -> None:
        """Keep what is known of a tensor; None where nothing is any more."""
        if trail is not None:
            if (place := self._place(tensor)) is not None:
                place[_geometry(tensor)] = trail
        elif (known := self._storages.get(_address(tensor))) is not None:
            known[1].pop(_geometry(tensor), None)

    def key(self, tensor: Tensor) -> Any:
        """Return what tells one tensor from all others of this pass: where it lies, and in what shape."""
        return None if self._place(tensor) is None else (_address(tensor), *_geometry(tensor))

    def _place(self, tensor: Tensor) -> dict[Any, Trail] | None:
        address = _address(tensor)
        if not address:
            return None
        known = self._storages.get(address)
        if known is None:
            if len(self._storages) > self._purge_at:
                kept = self._storages.items()
                self._storages = {at: each for at, each in kept if not each[0].expired()}  # type: ignore[no-untyped-call]
                self._purge_at = 2 * len(self._storages) + 4096
            known = self._storages[address] = StorageWeakRef(tensor.untyped_storage()), {}  # type: ignore[no-untyped-call]
        return known[1]

    def overwritten(self, tensor: Tensor) -> None:
        """Forget what lies in the same memory in another shape: it has changed too."""
        own = _geometry(tensor)
        _, place = self._storages.get(_address(tensor), (None, {}))
        for each in [each for each in place if each != own and not _apart(own, each)]:
            del place[each]


def _address(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return 0


def _geometry(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.storage_offset(), tensor.shape, tensor.stride()


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


def _filled(pieces: Sequence[Tensor], boxes: Sequence[Box], shape: Sequence[int]) -> Tensor:
    """Return the ids of a tensor of which pieces lie in boxes."""
    # With the axes of the tensor.
    placed = [
        ids.as_strided(
            [end - start if own is not None else 1 for start, end, own in box],
            [0 if own is None else ids.stride(own) for _, _, own in box],
        )
        for ids, box in zip(pieces, boxes, strict=True)
    ]
    kept = [
        axis
        for axis, size in enumerate(shape)
        if any(ids.stride(axis) or box[axis][:2] != (0, size) for ids, box in zip(placed, boxes, strict=True))
    ]
    whole = ids_of.filled([size if axis in kept else 1 for axis, size in enumerate(shape)])
    for ids, box in zip(placed, boxes, strict=True):
        into = whole
        for axis, (start, end, _) in enumerate(box):
            if axis in kept:
                into = into.narrow(axis, start, end - start)
            else:
                ids = ids.narrow(axis, 0, 1)
        into.copy_(ids)
    return whole.expand(tuple(shape))


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
