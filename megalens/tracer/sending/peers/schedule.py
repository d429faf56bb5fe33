"""What a process has agreed to change, and from which step on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar


class IMode(Protocol):
    """Whether the training waits."""

    @property
    def paused(self) -> bool:
        """Before the step after ``until``."""

    @property
    def until(self) -> int | None:
        """Last step before the pause; None is the current one."""


class IPlan(Protocol):
    """What is agreed on. Never changed: each method gives another."""

    @property
    def mode(self) -> IMode: ...

    @property
    def perturb_until(self) -> int | None:
        """Last step of a perturbation, which then ends by itself."""

    def starting(self, step: int) -> Any:
        """Return the plan with the steps that count from ``step``."""

    def patch_from(self, step: int) -> dict[str, Any]:
        """Return a patch that makes this plan of a process's first plan."""

    def unperturbed(self) -> Any: ...

    def unpaused(self) -> Any: ...


P = TypeVar("P", bound=IPlan)

_STRICT_SECONDS = 2.5
"""Longer than any decision takes: rank 0 gives a change up after 2 s."""
_SLICE_SECONDS = 0.25
_WAITED_FOR = frozenset(("perturb", "mode", "instruments"))


@dataclass(frozen=True)
class StepStart(Generic[P]):
    """What a step begins with.

    Attributes
    ----------
    plan : IPlan or None
        What is in force from this step on, where it changed.
    version : int
        Number of the change that made it.
    ids : tuple of str
        The ``configure`` messages that are applied with it.
    untraced : bool
        Whether this step is not traced, because a change of it is still undecided.
    expired : bool
        Whether a perturbation has ended by itself.
    waited : float
        Seconds for which the training was made to wait because somebody asked for it.
    """

    plan: P | None = None
    version: int = 0
    ids: tuple[str, ...] = ()
    untraced: bool = False
    expired: bool = False
    waited: float = 0.0


@dataclass
class _Prepared(Generic[P]):
    plan: P
    first: int
    ids: tuple[str, ...]
    strict: bool


@dataclass
class _Due(Generic[P]):
    step: int
    version: int
    plan: P
    ids: tuple[str, ...] = field(default=())


class Schedule(Generic[P]):
    """Knows, for every step, what is in force, without asking anybody.

    A change is first *prepared*: this process answers from which step on it could take it, and from that step
    on it traces nothing until it learns the decision. So no step is ever traced under a setting that is not
    the others', whenever the decision arrives: a late one costs rows of a few steps, which are counted, and
    never the training's time. Only what touches the training itself (a pause, a perturbation), or what
    processes measure together step by step (settings of instruments), is waited for, and not for longer than
    the decision can take.

    Parameters
    ----------
    change : callable
        Gives the plan after a patch; raises ``ProtocolError``.
    abandoned : callable, optional
        Asked while the training waits: whether nobody is left who could end the pause.
    waits : callable, optional
        Takes what is in force where the training begins to wait, and the step before which it does. Must not
        wait itself.
    """

    def __init__(
        self,
        plan: P,
        change: Callable[[P, Mapping[str, Any]], P],
        abandoned: Callable[[], bool] | None = None,
        waits: Callable[[StepStart[P], int], None] = lambda start, step: None,
        first_step: int = 1,
    ) -> None:
        self._change = change
        self._waits = waits
        self._abandoned = abandoned
        self._condition = threading.Condition()
        # Making a plan may read files; the training thread never waits for that.
        self._changing = threading.Lock()
        self.accepted = self.previous = plan
        """What was accepted last, in force from the next step at the latest; and what was before that."""
        self._current = plan
        self._version = self._current_version = 0
        self._since = first_step
        self.begun = first_step - 1
        """The step that began last."""
        self._prepared: dict[int, _Prepared[P]] = {}
        self._due: list[_Due[P]] = []
        self._released = False
        self.paused = False
        """Whether the training waits at a step now."""
        self.untraced_steps = 0

    @property
    def current(self) -> P:
        """What the step that began last follows."""
        return self._current

    @property
    def in_force(self) -> tuple[P, int, int]:
        """What was decided last, the number of the change, and the step from which on it counts."""
        with self._condition:
            return self.accepted, self._version, self._since

    # Any thread.

    def decide(self, patches: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> int:
        """Accept a change alone and return its step: for a job of one process.

        After a ``ProtocolError`` nothing has changed.
        """
        with self._changing:
            plan = self._changed(patches)
            with self._condition:
                number = self._version + 1
                first = self._prepare(number, plan, patches, ids)
                self._commit(number, first)
                return first

    def prepare(self, number: int, patches: Sequence[Mapping[str, Any]], ids: Sequence[str] = ()) -> int:
        """Get ready for a change and return the first step at which it can apply here.

        Raises ``ProtocolError`` when this process cannot take it; then nothing has changed.
        """
        with self._changing:
            plan = self._changed(patches)
            with self._condition:
                return self._prepare(number, plan, patches, ids)

    def commit(self, number: int, step: int) -> bool:
        """Apply a prepared change from ``step`` on; False when nothing of that number is prepared."""
        with self._condition:
            return self._commit(number, step)

    def abort(self, number: int) -> None:
        """Forget a prepared change."""
        with self._condition:
            self._prepared.pop(number, None)
            self._condition.notify_all()

    def abort_all(self) -> None:
        """Forget everything undecided: the deciding process is gone."""
        with self._condition:
            self._prepared.clear()
            self._condition.notify_all()

    def release(self) -> None:
        """Let the training go on for good, whatever is asked: those who could end a pause are gone."""
        with self._condition:
            self._released = True
            self._condition.notify_all()

    def resume_listening(self) -> None:
        """Undo :meth:`release`: somebody is there again. A pause from before does not come back."""
        with self._condition:
            if self._released:
                self._released = False
                for plan_of in (self._due, list(self._prepared.values())):
                    for entry in plan_of:
                        entry.plan = entry.plan.unpaused()
                self.accepted, self._current = self.accepted.unpaused(), self._current.unpaused()

    def amend(self, change: Callable[[P], P]) -> None:
        """Change every plan, in force or still to come: what all processes' scripts do by themselves."""
        # A plan may stand in several places, and stays one.
        made: dict[int, tuple[P, P]] = {}

        def once(plan: P) -> P:
            if id(plan) not in made:
                made[id(plan)] = plan, change(plan)
            return made[id(plan)][1]

        with self._changing, self._condition:
            for plan_of in (self._due, list(self._prepared.values())):
                for entry in plan_of:
                    entry.plan = once(entry.plan)
            self.accepted, self.previous = once(self.accepted), once(self.previous)
            self._current = once(self._current)

    # Training thread.

    def take_back(self, plan: P) -> None:
        """Restore the plan from before the last step: its successor could not be put on the model.

        What was decided for later steps stays.
        """
        with self._condition:
            if self.accepted is self._current:
                self.accepted = plan
            self._current = plan

    def at(self, step: int, *, decided: bool = False) -> StepStart[P]:
        """Begin ``step``.

        Waits only where the training was paused, or where a change that touches the training is being
        decided; with ``decided`` for any change that is.
        """
        with self._condition:
            began = time.monotonic()
            waited = 0.0
            while True:
                plan, version, ids = self._in_force(step)
                undecided = [entry for entry in self._prepared.values() if entry.first <= step]
                paused = not self._released and _pauses(plan, step)
                strict = any(decided or entry.strict for entry in undecided)
                if paused and self._abandoned is not None and self._abandoned():
                    self._released = True
                    continue
                if not paused and not (strict and time.monotonic() - began < _STRICT_SECONDS):
                    break
                if paused and (not self.paused or ids):
                    for due in self._due:
                        if due.step <= step:
                            due.ids = ()
                    self._waits(StepStart(plan, version, ids), step)
                self.paused = paused
                self._condition.wait(_SLICE_SECONDS)
                waited = time.monotonic() - began
            self.paused = False
            changed = version != self._current_version
            self._due = [due for due in self._due if due.step > step]
            expired = plan.perturb_until is not None and step > plan.perturb_until
            if expired:
                plan = plan.unperturbed()
                if not self._due and not self._prepared:
                    self.accepted = plan
            self._current, self._current_version = plan, version
            self.begun = step
            self.untraced_steps += bool(undecided)
            return StepStart(
                plan if changed or expired else None, version, ids, bool(undecided), expired, waited
            )

    def _in_force(self, step: int) -> tuple[P, int, tuple[str, ...]]:
        plan, version = self._current, self._current_version
        ids: tuple[str, ...] = ()
        for due in self._due:
            if due.step <= step:
                plan, version = due.plan, due.version
                ids += due.ids
        return plan, version, ids

    def _changed(self, patches: Sequence[Mapping[str, Any]]) -> P:
        plan = self.accepted
        for patch in patches:
            plan = self._change(plan, patch)
        return plan

    def _prepare(self, number: int, plan: P, patches: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> int:
        strict = any(not _WAITED_FOR.isdisjoint(patch) for patch in patches)
        first = self.begun + 1
        self._prepared[number] = _Prepared(plan, first, tuple(ids), strict)
        return first

    def _commit(self, number: int, step: int) -> bool:
        prepared = self._prepared.pop(number, None)
        if prepared is not None:
            plan = prepared.plan.starting(step)
            self.previous = self.accepted
            self.accepted, self._version, self._since = plan, number, step
            self._due.append(_Due(step, number, plan, prepared.ids))
        self._condition.notify_all()
        return prepared is not None


def _pauses(plan: IPlan, step: int) -> bool:
    mode = plan.mode
    return mode.paused and (mode.until is None or step > mode.until)
