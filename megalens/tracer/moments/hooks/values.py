"""Which values of a tensor this process has and counts, and measuring all parameters at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....protocol import MOMENT_COLUMNS
from ...coordinates import plain_tensor
from .. import measure, measure_natively
from ..merge import merge_rows
from ..part import COLUMNS, TYPES

_TYPES = frozenset(TYPES)
_PLAIN = (Tensor, nn.Parameter)
_COUNT, _NEAR_ZERO = MOMENT_COLUMNS.index("count"), MOMENT_COLUMNS.index("near_zero_count")


class ParamRows:
    """Measures the same tensors in step after step, which the training step waits for.

    So each is asked as little as can be, and no memory is allocated anew. ``ids`` are indices in the
    process's list of names; ``given`` give the tensor of each, or None.
    """

    def __init__(self, ids: Sequence[int], given: Sequence[Callable[[], Tensor | None]]) -> None:
        self._given = tuple(zip(ids, given, strict=True))
        self._rows: Tensor | None = None
        self._count = 0
        self.in_part: list[int] = []
        """Ids of those that were left out in the last call: no process has them, only parts of their sum."""

    def measure(self, only: Collection[int] | None = None) -> list[tuple[list[int], Tensor]]:
        """Measure what there is, or ``only`` some ids of it, each device's in one call.

        Returns ids and their rows, float64 ``[n, 11]`` on the device, which the next call may overwrite.
        """
        ids: list[int] = []
        tensors: list[Tensor] = []
        self.in_part = []
        for at, give in self._given:
            if only is not None and at not in only:
                continue
            tensor = give()
            if tensor is None:
                continue
            values = local_values(tensor)
            if values is None:
                self.in_part.append(at)
            else:
                ids.append(at)
                tensors.append(values)
        if not tensors:
            return []
        rows = measure_natively(tensors, self._rows_for(len(tensors)))
        if rows is not None:
            return [(ids, rows)]
        found = [
            ([ids[at] for at in here], measure([tensors[at] for at in here])) for here in _by_device(tensors)
        ]
        several = [
            at
            for at, tensor in enumerate(tensors)
            if tensor.layout is torch.sparse_coo and tensor.dtype in _TYPES
        ]
        return found + [([ids[at]], row_of(tensors[at])) for at in several]

    def _rows_for(self, count: int) -> Tensor:
        # The length of a tensor takes longer to ask for than twenty tensors to describe.
        if self._rows is None or self._count != count:
            self._count = count
            # Rows outlive the pass that they were measured in, so they are no inference tensors.
            with torch.inference_mode(False):
                self._rows = torch.empty((count, COLUMNS), dtype=torch.float64)
        return self._rows


def _by_device(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Return the indices of those that can be measured, device by device."""
    indices: dict[torch.device, list[int]] = {}
    for at, tensor in enumerate(tensors):
        if measurable(tensor):
            indices.setdefault(tensor.device, []).append(at)
    return list(indices.values())


def measurable(tensor: Any) -> bool:
    """Return whether a tensor has numbers to measure (ids and masks have not); an empty one has count 0."""
    return (
        isinstance(tensor, Tensor)
        and tensor.dtype in _TYPES
        and tensor.layout is torch.strided
        and not tensor.is_meta
    )


def row_of(values: Tensor) -> Tensor:
    """Measure one tensor, float64 ``[1, 11]``; the values that a sparse one lacks are zeros, and count."""
    if values.layout is not torch.sparse_coo:
        return measure([values])
    with torch.no_grad():
        # What is there several times is a sum. The tensor itself stays as it is.
        there = values.coalesce().values()
    rows = measure([there])
    zeros = torch.zeros_like(rows)
    zeros[0, [_COUNT, _NEAR_ZERO]] = float(values.numel() - there.numel())
    return merge_rows(torch.stack([rows, zeros]))


def rows_of(several: Sequence[Tensor]) -> Tensor:
    """Measure tensors of one device, float64 ``[n, 11]``, sparse ones as :func:`row_of` does."""
    if any(values.layout is torch.sparse_coo for values in several):
        return torch.cat([row_of(values) for values in several])
    return measure(several, threads=1)


def local_values(tensor: Tensor) -> Tensor | None:
    """Return the values here: of a ``DTensor`` the local shard without padding; None for partial sums."""
    # Asking a plain tensor for what only others have raises an error inside, for each of thousands.
    if type(tensor) in _PLAIN:
        return tensor
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return _arrived(tensor)
    if any(placement.is_partial() for placement in placements):
        return None
    local: Tensor = tensor._local_tensor  # type: ignore[attr-defined]
    # to_local() would be a part of the autograd graph; only the values are looked at here.
    return _arrived(local)


def counted_here(tensor: Tensor) -> bool | None:
    """Return whether this process counts its values of a ``DTensor``; None for a plain tensor.

    Every holder of a shard counts, and the first of replicas.
    """
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return None
    at = tensor.device_mesh.get_coordinate()  # type: ignore[attr-defined]
    if at is None:
        return False
    return all(here == 0 or not kind.is_replicate() for here, kind in zip(at, placements, strict=True))


def _arrived(tensor: Tensor) -> Tensor:
    # What a collective of the model's own has not finished writing.
    wait = getattr(tensor, "trigger_wait", None)
    return plain_tensor(tensor) if wait is None else wait()


def first_tensor(values: Any) -> Tensor | None:
    """Return the first output of a module: the tensor itself, or the first of a tuple or mapping."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, (tuple, list)):
        return values[0] if values and isinstance(values[0], Tensor) else None
    if hasattr(values, "values") and callable(values.values):
        first = next(iter(values.values()), None)
        return first if isinstance(first, Tensor) else None
    return None


def half_precision() -> bool:
    """Return whether this is computed in float16, whose gradients need a loss scale."""
    return any(
        torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16
        for kind in ("cuda", "cpu")
    )
