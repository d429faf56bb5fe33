"""What each process computed of the gradients itself, before their data-parallel reduction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from torch import Tensor, nn

from .. import measure
from ..part import MeasuredRows
from ..points import BeforeReduction, ParamPoint
from .values import ParamRows, local_values, measurable

UNREDUCED = ("grad_unreduced", "grad_accumulated")
"""Of the last backward pass of a step, and after each of them; of each the gradient that has been accumulated
so far.
"""

_TWICE = (
    "Gradients before their reduction are left out: they are reduced after each micro-batch, so that no "
    "process has the sum of its own. "
    "set_requires_gradient_sync(False) for all but the last micro-batch reduces them once."
)


class OwnGradients:
    """Measures a process's own gradients once a backward pass has computed them all.

    DDP's reduction is not yet written back then. Where an adapter knows the moment right before a
    ``reduction``, they are measured there.

    Parameters
    ----------
    params : sequence of ParamPoint
        Whose gradients, with their indices in the list of names as ``ids``. Those of a ``DTensor`` are left
        out where their reduction is unknown: one name is for pieces that are not alike.
    spent : callable
        Calls a function so that neither its time nor an error of its own is the training's.
    """

    def __init__(
        self,
        params: Sequence[ParamPoint],
        ids: Sequence[int],
        warn: Callable[[str], None],
        spent: Callable[[Callable[[], None]], None],
        reduction: BeforeReduction | None = None,
    ) -> None:
        times = Counter(id(point.parameter) for point in params)
        # Of several experts in one parameter each is a tensor of its own.
        self._index = {
            point.parameter: at
            for at, point in zip(ids, params, strict=True)
            if times[id(point.parameter)] == 1
        }
        self._spent, self._reduction = spent, reduction
        self._stop: Callable[[], None] | None = None
        # Of each name its rows, one for each call.
        self._reduced: dict[int, list[Tensor]] = {}
        plain = [
            each for each in zip(ids, params, strict=True) if not hasattr(each[1].parameter, "placements")
        ]
        self._gradients = ParamRows([at for at, _ in plain], [point.gradient for _, point in plain])
        self._warn = warn
        self._due: Collection[str] = ()
        self._last: list[tuple[list[int], Tensor]] = []
        self._passes: list[MeasuredRows] = []

    def begin(self, due: Collection[str]) -> None:
        """Begin a step, of which these statistics are due."""
        self._due = [stat for stat in UNREDUCED if stat in due]
        self._last, self._passes = [], []
        self._reduced = {}
        self.end()
        if self._due and self._reduction is not None:
            self._stop = self._reduction.begin(
                lambda p, gradient: self._spent(lambda: self._before(p, gradient))
            )

    def end(self) -> None:
        """Watch reductions no more. Safe twice."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    def _before(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        """Measure what is about to be reduced."""
        at, values = self._index.get(parameter), local_values(gradient)
        if at is not None and values is not None and measurable(values):
            self._reduced.setdefault(at, []).append(measure([values]))

    def computed(self) -> None:
        """Measure what a backward pass has computed."""
        if not self._due or self._reduction is not None:
            return
        self._last = self._gradients.measure()
        if self._last and "grad_accumulated" in self._due:
            # The next pass writes its rows where these are.
            copies = [(ids, rows.clone()) for ids, rows in self._last]
            self._passes.append(_part("grad_accumulated", copies, len(self._passes)))

    def take(self) -> list[MeasuredRows]:
        self.end()
        parts, self._passes = self._passes, []
        if self._reduction is not None:
            parts, self._last = self._before_reduction(self._reduction.each_pass)
        if "grad_unreduced" in self._due and self._last:
            parts.append(_part("grad_unreduced", self._last))
        return parts

    def _before_reduction(self, each_pass: bool) -> tuple[list[MeasuredRows], list[tuple[list[int], Tensor]]]:
        """Return what was measured after each micro-batch, and of the last of them."""
        times = max((len(rows) for rows in self._reduced.values()), default=0)
        if times > 1 and not each_pass:
            self._warn(_TWICE)
            return [], []
        passes = range(times if each_pass and "grad_accumulated" in self._due else 0)
        parts = [
            _part(
                "grad_accumulated",
                [([at], rows[number]) for at, rows in self._reduced.items() if number < len(rows)],
                number,
            )
            for number in passes
        ]
        return parts, [([at], rows[-1]) for at, rows in self._reduced.items()]


def _part(stat: str, measured: Sequence[tuple[Sequence[int], Tensor]], micro_batch: int = -1) -> MeasuredRows:
    # Judged, not recorded: whoever counts the parameter counts the reduced gradient.
    part = MeasuredRows(stat, counted=False, micro_batch=micro_batch)
    for ids, rows in measured:
        part.add(ids, rows)
    return part
