"""Measuring a tensor of every parameter at once: its values, or its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .. import measure, measure_natively
from ..columns import COLUMNS
from .values import local_values, measurable

__all__ = ["ParamRows"]


class ParamRows:
    """Measures the same tensors in step after step, which a training step waits for: so each is asked as little as can be, and no memory is taken anew.

    Parameters
    ----------
    ids : sequence of int
        Places in the process's list of names.
    given : sequence of callable
        Give the tensor of each, or None where there is none now.
    """

    def __init__(self, ids: Sequence[int], given: Sequence[Callable[[], Tensor | None]]) -> None:
        self._given = tuple(zip(ids, given, strict=True))
        self._rows: Tensor | None = None
        self._count = 0
        self.in_part: list[int] = []
        """Ids of those that were left out in the last call: no process has them, only parts of their sum."""

    def measure(self) -> list[tuple[list[int], Tensor]]:
        """Measure what there is, each device's in one call.

        Returns
        -------
        list of tuple
            Ids, and their rows, float64 ``[n, 11]`` on the device, which the next call may write anew.
        """
        ids: list[int] = []
        tensors: list[Tensor] = []
        self.in_part = []
        for at, give in self._given:
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
        return [
            ([ids[at] for at in here], measure([tensors[at] for at in here])) for here in _by_device(tensors)
        ]

    def _rows_for(self, count: int) -> Tensor:
        # The length of a tensor takes longer to ask for than twenty tensors to describe.
        if self._rows is None or self._count != count:
            self._count = count
            # Rows outlive the pass that they were measured in, so they are no inference tensors.
            with torch.inference_mode(False):
                self._rows = torch.empty((count, COLUMNS), dtype=torch.float64)
        return self._rows


def _by_device(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Return the places of those that can be measured, device by device."""
    places: dict[torch.device, list[int]] = {}
    for at, tensor in enumerate(tensors):
        if measurable(tensor):
            places.setdefault(tensor.device, []).append(at)
    return list(places.values())
