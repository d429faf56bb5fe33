"""What each process computed of the gradients itself, before they are reduced over data-parallel processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from torch import Tensor

from ..joining.part import MeasuredRows
from ..points import ParamPoint
from .param_rows import ParamRows
from .values import measurable

__all__ = ["UNREDUCED", "OwnGradients"]

UNREDUCED = ("grad_unreduced", "grad_accumulated")
"""Of the last backward pass of a step, and after each of them; of each the gradient that has been accumulated so far."""

_BUCKETS = (
    "Gradients before their reduction are left out: they lie in the buckets of it, which takes them before the pass is over. "
    "DistributedDataParallel(…, gradient_as_bucket_view=False) keeps them apart."
)

_SMALL = 8


class OwnGradients:
    """Measures a process's own gradients when a backward pass has computed them all, and DDP's reduction is not yet written back.

    Parameters
    ----------
    params : sequence of ParamPoint
        Whose gradients, with their places in the list of names as ``ids``. Those of a ``DTensor`` are left out: one name is for pieces that are not alike.
    warn : callable
        Takes a sentence for the user.
    """

    def __init__(self, params: Sequence[ParamPoint], ids: Sequence[int], warn: Callable[[str], None]) -> None:
        whole = [
            each for each in zip(ids, params, strict=True) if not hasattr(each[1].parameter, "placements")
        ]
        self._gradients = ParamRows([at for at, _ in whole], [point.gradient for _, point in whole])
        own = {id(point.parameter): point.parameter for _, point in whole}
        self._small = sorted(own.values(), key=lambda parameter: parameter.numel())[:_SMALL]
        self._warn = warn
        self._due: Collection[str] = ()
        self._last: list[tuple[list[int], Tensor]] = []
        self._passes: list[MeasuredRows] = []

    def begin(self, due: Collection[str]) -> None:
        """Begin a step, of which these statistics are due."""
        self._due = [stat for stat in UNREDUCED if stat in due]
        self._last, self._passes = [], []

    def computed(self) -> None:
        """Measure what a backward pass has computed."""
        if not self._due:
            return
        self._last = self._gradients.measure() if self._apart() else []
        if self._last and "grad_accumulated" in self._due:
            # The next pass writes its rows where these are.
            copies = [(ids, rows.clone()) for ids, rows in self._last]
            self._passes.append(_part("grad_accumulated", copies, len(self._passes)))

    def take(self) -> list[MeasuredRows]:
        """Return what the step gave."""
        parts, self._passes = self._passes, []
        if "grad_unreduced" in self._due and self._last:
            parts.append(_part("grad_unreduced", self._last))
        return parts

    def _apart(self) -> bool:
        """Return whether gradients have memory of their own: small ones are in one bucket. Told once."""
        storages = [
            gradient.untyped_storage().data_ptr()
            for parameter in self._small
            if (gradient := parameter.grad) is not None and measurable(gradient)
        ]
        if len(set(storages)) < len(storages):
            self._warn(_BUCKETS)
            return False
        return True


def _part(stat: str, measured: Sequence[tuple[Sequence[int], Tensor]], micro_batch: int = -1) -> MeasuredRows:
    # Judged, not recorded: whoever counts the parameter counts the reduced gradient.
    part = MeasuredRows(stat, counted=False, micro_batch=micro_batch)
    for ids, rows in measured:
        part.add(ids, rows)
    return part
