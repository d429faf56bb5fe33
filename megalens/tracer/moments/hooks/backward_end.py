"""When a backward pass ends, after all that others queue for that moment.

What each process computed of the gradients itself, before their data-parallel reduction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...own_hooks import hook_after, remove_all
from ...passes import after_backward, at_each_backward
from .. import measure
from ..part import MeasuredRows
from ..points import BeforeReduction, ParamPoint
from .values import ParamRows, half_precision, local_values, measurable

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


_WATCHED = 4


class BackwardEnd:
    """Calls back at the end of each backward pass through a model, while it is on.

    What is queued in the autograd engine runs after the pass. DDP and ``fully_shard`` finish the gradients
    that way, in the same queue; so the first thing queued here queues another, which comes after theirs.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass. The gradient of their output is the first thing in a backward
        pass, outside of all that checkpointing nests in it.
    parameters : sequence of torch.nn.Parameter
        Where a pass does not come through the output of a root, some of these detect it instead.
    began, ended : callable
        Called when a pass comes to a root's output, and after each pass; must not raise.
    computed : callable, optional
        Called when all gradients of a pass are computed, before DDP finishes the reduction that it began;
        must not raise. Not of a pass that comes through no root.
    """

    def __init__(
        self,
        roots: Sequence[nn.Module],
        parameters: Sequence[nn.Parameter],
        began: Callable[[], None],
        ended: Callable[[], None],
        computed: Callable[[], None] | None = None,
    ) -> None:
        self._began, self._ended, self._computed = began, ended, computed
        self._queued = False
        self._entered = False
        self.on = False
        self.late = False
        """Whether gradients came when no backward pass was going on, as ``fully_shard`` reduces those of a
        stage of a pipeline once all its micro-batches are through.
        """
        self.half = False
        """Whether the model ran in half precision, which asks for a loss scale."""
        self.accumulated: list[Tensor] = []
        """Of the parameters that are looked at, those that the pass has given a gradient."""
        spread = [p for p in parameters if p.requires_grad]
        chosen = spread[:: max(1, len(spread) // _WATCHED)][:_WATCHED]
        self._handles: list[Any] = [hook_after(root, self._called) for root in roots]
        self._handles += [
            p.register_post_accumulate_grad_hook(self._accumulated)  # type: ignore[no-untyped-call]
            for p in chosen
        ]

    def begin(self, on: bool) -> None:
        """Follow the passes of a step, or do not."""
        self.on = on
        self._queued = self._entered = self.half = self.late = False

    def close(self) -> None:
        """Take every hook off. Safe twice."""
        self.on = False
        remove_all(self._handles)

    def _called(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not self.on or not torch.is_grad_enabled():
            return
        self.half = self.half or half_precision()
        at_each_backward(output, self._arrived)

    def _arrived(self) -> None:
        self._entered = True
        self._queue()

    def _accumulated(self, parameter: Tensor) -> None:
        if self.on and torch._C._current_graph_task_id() == -1:
            self.late = True
        elif self.on:
            self._queue()
            self.accumulated.append(parameter)

    def _queue(self) -> None:
        if self.on and not self._queued:
            self._queued, self.accumulated = True, []
            if self._entered:
                self._began()
            after_backward(self._first)

    def _first(self) -> None:
        # Queued when the first gradient arrived, so that it runs before what DDP queued with its last bucket.
        if self.on and self._entered and self._computed is not None:
            self._computed()
        after_backward(self._second)

    def _second(self) -> None:
        self._queued = self._entered = False
        if self.on:
            self._ended()
