"""What each process computed of the gradients itself, before they are reduced over data-parallel processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from torch import Tensor, nn

from .. import measure
from ..joining.part import MeasuredRows
from ..points import ParamPoint
from .param_rows import ParamRows
from .values import local_values, measurable

__all__ = ["UNREDUCED", "OwnGradients"]

UNREDUCED = ("grad_unreduced", "grad_accumulated")
"""Of the last backward pass of a step, and after each of them; of each the gradient that has been accumulated so far."""

_BUCKETS = (
    "Gradients before their reduction are left out: they lie in the buckets of it, which takes them before the pass is over. "
    "DistributedDataParallel(…, gradient_as_bucket_view=False) keeps them apart."
)

_TWICE = (
    "Gradients before their reduction are left out: they are reduced after each micro-batch, so that no process has the sum of its own. "
    "set_requires_gradient_sync(False) for all but the last micro-batch reduces them once."
)

_SMALL = 8
Reduction = Callable[[Callable[[nn.Parameter, Tensor], None]], Callable[[], None]]


class OwnGradients:
    """Measures a process's own gradients when a backward pass has computed them all, and DDP's reduction is not yet written back; or right before a reduction that an adapter knows of.

    Parameters
    ----------
    params : sequence of ParamPoint
        Whose gradients, with their places in the list of names as ``ids``. Those of a ``DTensor`` are left out where nobody knows of their reduction: one name is for pieces that are not alike.
    warn : callable
        Takes a sentence for the user.
    spent : callable
        Takes a function and calls it, so that neither its time nor an error of its own is the training's.
    reduction : callable, optional
        As ``before_reduction`` of :class:`MomentPoints`.
    """

    def __init__(
        self,
        params: Sequence[ParamPoint],
        ids: Sequence[int],
        warn: Callable[[str], None],
        spent: Callable[[Callable[[], None]], None],
        reduction: Reduction | None = None,
    ) -> None:
        times = Counter(id(point.parameter) for point in params)
        # Of several experts in one parameter each is a tensor of its own.
        self._places = {
            point.parameter: at
            for at, point in zip(ids, params, strict=True)
            if times[id(point.parameter)] == 1
        }
        self._spent, self._reduction = spent, reduction
        self._stop: Callable[[], None] | None = None
        self._reduced: dict[int, Tensor] = {}
        self._twice = False
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
        self._reduced, self._twice = {}, False
        self.end()
        if self._due and self._reduction is not None:
            self._stop = self._reduction(lambda p, gradient: self._spent(lambda: self._before(p, gradient)))

    def end(self) -> None:
        """Look at no reduction any more. Safe twice."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    def _before(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        """Measure what is about to be reduced."""
        at, values = self._places.get(parameter), local_values(gradient)
        if at is not None and values is not None and measurable(values):
            self._twice |= at in self._reduced
            self._reduced[at] = measure([values])

    def computed(self) -> None:
        """Measure what a backward pass has computed."""
        if not self._due or self._reduction is not None:
            return
        self._last = self._gradients.measure() if self._apart() else []
        if self._last and "grad_accumulated" in self._due:
            # The next pass writes its rows where these are.
            copies = [(ids, rows.clone()) for ids, rows in self._last]
            self._passes.append(_part("grad_accumulated", copies, len(self._passes)))

    def take(self) -> list[MeasuredRows]:
        """Return what the step gave."""
        self.end()
        parts, self._passes = self._passes, []
        if self._twice:
            self._warn(_TWICE)
        elif self._reduced:
            self._last = [([at], rows) for at, rows in self._reduced.items()]
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
