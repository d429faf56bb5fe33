"""What becomes of a change that was accepted and then could not be put on the model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..protocol import ProtocolError
from .sending.peers import Schedule, StepStart
from .tensors.instrument import TensorTracer
from .tensors.plan import TracingPlan

__all__ = ["Recovery"]


class Recovery:
    """Goes back to the settings before.

    A process alone does so in the step that the change was for. In a job of several, the process that could not follow traces nothing, so that no row of it is
    under settings that are not the others'; rank 0 hears of that with its next sign of life and asks all for what was in force before. Should that fail as
    well, everything is switched off, which needs no hook.

    Parameters
    ----------
    schedule : callable
        Gives what is agreed on.
    tensors : TensorTracer
        What follows the settings.
    failed : callable
        Takes what failed and the error, to count and say it.
    """

    def __init__(
        self,
        schedule: Callable[[], Schedule[TracingPlan]],
        tensors: TensorTracer,
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._schedule = schedule
        self._tensors = tensors
        self._failed = failed
        self._asked: list[int] = []
        self.version = 0
        """Number of the newest change that this process could not follow; 0 where there is none."""

    def go_back(
        self, start: StepStart[TracingPlan], before: TracingPlan, error: Exception, alone: bool
    ) -> None:
        """Trace what was traced before; in a job of several processes nothing, until rank 0 has asked all. Training thread; never raises."""
        self._failed("A change", error)
        self.version = start.version
        nothing = TracingPlan(instruments=before.instruments)
        for plan in (before, nothing) if alone else (nothing,):
            if alone:
                self._schedule().take_back(plan)
            try:
                self._tensors.follow(plan, start.version)
                return
            except Exception as another:
                self._failed("Going back to the settings before", another)

    def ask(self, versions: Collection[Any], change: Callable[[Mapping[str, Any]], Any]) -> None:
        """Rank 0: ask all for the settings before, where one of them could not follow the newest change; see :meth:`patch`."""
        patch = self.patch(versions)
        if patch is not None:
            with contextlib.suppress(ProtocolError):
                change(patch)

    def patch(self, versions: Collection[Any]) -> Mapping[str, Any] | None:
        """Rank 0: return the change to ask all for, where one of them could not follow the newest one.

        Parameters
        ----------
        versions : collection
            What the processes say is the newest that each could not follow.
        """
        schedule = self._schedule()
        plan, version, _ = schedule.in_force
        if not version or version not in versions or version in self._asked:
            return None
        # The one that this asks for has the next number, if nobody else asks for anything.
        again = version - 1 in self._asked
        self._asked = [*self._asked[-8:], version]
        before = TracingPlan() if again else schedule.previous
        patch = before.patch_from(schedule.begun + 1)
        gone = {name: None for name in plan.asked if name not in before.asked}
        return {"perturb": None, **patch, "flags": {**gone, **patch["flags"]}}
