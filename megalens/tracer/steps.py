"""The step path: what happens in the training thread where a step begins and where it ends.

::

    begin ─▶ between_steps ─▶ changes that are due ─▶ step_begins ─▶ passes … ─▶ end ─▶ step_ends ─▶ its cost

Nothing here waits, but for a pause that somebody asked for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .coordinator import Coordinator
from .first_pass import FirstPass, leave_out_shape_inference
from .model_changes import ModelChanges
from .own_hooks import hook_before, remove_all
from .passes import OUTSIDE, PassHooks
from .points import ModelPoints
from .sending.peers import StepStart
from .sending.worker import ScalarLog, StepCost
from .tensors.instrument import TensorTracer
from .tensors.plan import TracingPlan

_PASSES = 10
"""Forward passes without a step before the user is warned; chosen by hand, not measured."""
_clock = time.perf_counter_ns


class Steps:
    """Counts the steps of one training, calls the instruments, and measures what that costs.

    Parameters
    ----------
    training : bool
        Whether the steps are training; otherwise their forward passes need no gradients.

    Attributes
    ----------
    number : int
        The step that began last.
    depth : int
        How many steps are open: one inside of another is a part of it.
    closed : bool
        Whether there are no more steps.
    spent_ns : int
        Time of the training thread inside of the tracer since it was handed in last.
    scalars : ScalarLog
        Numbers that the script has logged since then.
    """

    def __init__(
        self,
        points: ModelPoints,
        coordinator: Coordinator,
        tensors: TensorTracer,
        first_step: int,
        training: bool,
    ) -> None:
        self._coordinator = coordinator
        self._instruments = coordinator.instruments
        self._tensors = tensors
        self.number = first_step - 1
        self.depth = 0
        self.closed = False
        self._began_ns = self.spent_ns = 0
        self._control = False
        self.scalars = ScalarLog()
        self.passes = PassHooks(points.roots, self._instruments.notify)
        # Passes without gradients are what such steps are for.
        self.passes.phases = int(not training)
        self.forgotten = ForgottenStep(points.roots, coordinator.warn)
        self._changes = ModelChanges(points.roots, coordinator.warn)
        self._first_pass = FirstPass(
            points,
            coordinator.warn,
            lambda places: self._instruments.notify("places_changed", places),
            self._apart,
        )

    @property
    def follows_passes(self) -> bool:
        return any(each.passes for each in self._instruments)

    def follow_passes(self) -> None:
        """Have hooks for passes exactly while an instrument follows them."""
        self.passes.set(self.follows_passes)

    def pause(self, phase: str) -> bool:
        """Begin evaluation or generation; return whether a step or another phase is going on."""
        inside = self.depth > 0 or self.passes.phases > 0
        self.forgotten.close()
        self.passes.phases += 1
        self._instruments.notify("pause", phase)
        self._watch_first()
        return inside

    def resume(self, inside: bool) -> None:
        self.passes.phases -= 1
        self._instruments.notify("resume", inside, last_first=True)
        if not inside:
            self.hand_in(0)
            self._follow_points()

    def close(self) -> None:
        """Hand in what is left and take every hook off; there are no more steps."""
        self.hand_in(0)
        self.closed = True
        self.release()

    def take_changes(self) -> None:
        """See :meth:`Tracer.take_changes`."""
        if self.depth or self.closed:
            return
        self.number += 1
        start = self._coordinator.schedule.at(self.number, decided=True)
        if start.plan is not None or start.ids:
            self._apply(start)

    def begin(self) -> None:
        """Begin a step; inside of another one, count how deep."""
        if self.depth == 0 and not self.closed:
            self.spent_ns += self._instruments.take_ns()
            self._instruments.notify("between_steps")
            # What viewers asked for is neither part of a step nor a cost of tracing one.
            self._instruments.take_ns()
        now = _clock()
        self.depth += 1
        if self.depth > 1 or self.closed:
            return
        start = self._coordinator.schedule.at(self.number + 1)
        # What somebody asked the training to wait is no cost of tracing.
        now += int(start.waited * 1e9)
        self._began_ns = now
        self.number += 1
        self.forgotten.close()
        self._changes.look(self.number)
        leave_out_shape_inference()
        if start.plan is not None or start.ids:
            self._apply(start)
        self._control = self._coordinator.budget.control(self.number)
        self.passes.begin()
        self.spent_ns += self._instruments.take_ns()
        self._instruments.notify("step_begins", self.number, start.untraced or self._control)
        # Its hooks come before those of instruments.
        self._watch_first()
        # What they measured themselves of that is in what is measured here.
        self._instruments.take_ns()
        self.spent_ns += _clock() - now

    def end(self) -> None:
        """End the step, once the outermost one ends, and hand in what it cost."""
        self.depth -= 1
        if self.depth > 0 or self.closed:
            return
        began = _clock()
        self.passes.inside = False
        self.spent_ns += self._instruments.take_ns()
        self._first_pass.step_ends(self.number)
        self._instruments.notify("step_ends", last_first=True)
        self._instruments.take_ns()
        now = _clock()
        self.spent_ns += now - began
        self.hand_in(now - self._began_ns)
        self._follow_points()

    def abandon(self) -> None:
        """Forget the step that is going on: it is incomplete."""
        self.depth = 0
        self.number -= 1
        self.passes.inside = False
        self._instruments.notify("step_abandoned", last_first=True)
        self.hand_in(0)

    def hand_in(self, wall_ns: int) -> None:
        """Hand over the step's cost and the numbers logged in it; outside of steps ``wall_ns`` is 0."""
        worker = self._coordinator.worker
        if worker is None:
            return
        if worker.untraced:
            # The hub is gone for good: leave the model as it was.
            self.release()
            return
        if wall_ns or len(self.scalars):
            spent, self.spent_ns = self.spent_ns, 0
            numbers, ready = self.scalars.take()
            worker.step_ended(StepCost(self.number, wall_ns, spent, self._control, numbers, ready))

    def _apply(self, start: StepStart[TracingPlan]) -> None:
        worker = self._coordinator.worker
        if worker is not None and worker.untraced:
            return
        before = self._tensors.plan
        try:
            if start.plan is not None:
                self._tensors.follow(start.plan, start.version)
            self._coordinator.applied(start, self.number)
            self.follow_passes()
        except Exception as error:
            self._coordinator.not_applied(start, before, error)

    def _watch_first(self) -> None:
        if any(each.uses_points for each in self._instruments):
            self._first_pass.open()

    def _follow_points(self) -> None:
        if self._first_pass.fresh:
            self._first_pass.fresh = False
            self._coordinator.follow_points()

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Let nobody take the passes inside for the training's."""
        self._instruments.notify("pause", OUTSIDE)
        try:
            yield
        finally:
            self._instruments.notify("resume", True, last_first=True)

    def release(self) -> None:
        self.forgotten.close()
        self._changes.close()
        self._first_pass.close()
        self._instruments.notify("release", self.closed)
        self.passes.set(False)


class ForgottenStep:
    """Warns of a script without steps: of ten forward passes with gradients before the first step or phase.

    It has no hook on the model after that.
    """

    def __init__(self, roots: Sequence[nn.Module], warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._roots = tuple(roots)
        self._passes = 0
        self._handles: list[Any] = []

    def open(self) -> None:
        """Begin to count. Safe twice."""
        if not self._handles and self._passes < _PASSES:
            self._handles = [hook_before(root, self._called) for root in self._roots]

    def close(self) -> None:
        """Take the hooks off. Safe twice."""
        remove_all(self._handles)

    def _called(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        self._passes += 1
        if self._passes == _PASSES:
            self.close()
            self._warn(
                f"{_PASSES} forward passes ran and no step has begun, so nothing is traced. Put `with "
                "tracer.step():` around each optimizer step, or call `tracer.wrap(optimizer)` once before "
                "the loop."
            )


class StepScope:
    """``with tracer.step():``; one object serves all steps."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin, self._end = begin, end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *error: object) -> None:
        self._end()


class StepHandle:
    """What :meth:`Tracer.wrap` gives."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove: Callable[[], None] | None = remove

    def remove(self) -> None:
        """Let optimizer steps end no more steps of the tracer. Safe twice."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()
