"""Keeping what tracing costs inside a limit: measured on the job itself, and paid for by tracing less."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ...protocol.messages_generated import Budget
from ..errors import TracerError
from .control_steps import SHARE, Design, OwnCost, Shift, ShiftEstimate

_FACTORS = (1, 2, 3, 4, 6, 8, 12, 16)
_LAST_FACTORS = (24, 32, 48, 64)
_LONGEST_CYCLE = 4096
_FIRST_BLOCKS = 3
_ENOUGH_STEPS = 1536
_PATIENCE, _MOST_PATIENCE = 8, 128
# One-sided 5 in 10,000, because the question is asked after every block.
_SURE = 3.29
_HEADROOM = 0.8

Settings = Mapping[str, Mapping[str, Any]]

_SEED = 20_261_121
"""The same on all ranks, so that they leave out the same steps without a word."""
_RETRY_STEPS = 100
"""After so many steps a request that had no effect is repeated: a rank may have been stopped."""


class BudgetKeeper:
    """Follows the budget of the plan on every rank; only rank 0's observes steps and asks for changes."""

    def __init__(self, ladder: Ladder, ask: Callable[[Any], None]) -> None:
        self._ladder = ladder
        self._ask = ask
        self._budget: CostBudget | None = None
        self._asked: ICostReduction | None = None
        self._retry_at = 0
        # Between the training thread, which changes what is measured, and the one that measures.
        self._lock = threading.Lock()

    def follow(
        self, limit: float | None, settings: Mapping[str, Mapping[str, Any]], given_up: ICostReduction
    ) -> None:
        """Take what is in force from the step that begins now."""
        with self._lock:
            if limit is None:
                self._budget = None
                return
            if self._budget is None or self._budget.limit != limit:
                self._budget = CostBudget(limit, self._ladder, _SEED)
            self._budget.follow(settings)
            if given_up != self._budget.cost_reduction:
                self._budget.applied(given_up)
            self._asked = None

    def control(self, step: int) -> bool:
        """Return whether nothing is traced in this step."""
        budget = self._budget
        return budget is not None and budget.control(step)

    def observe(self, step: int, traced: bool, wall_ns: int, spent_ns: int = 0) -> None:
        """Count one step, and ask for what follows from it."""
        with self._lock:
            budget = self._budget
            if budget is None:
                return
            budget.observe(step, traced, wall_ns, spent_ns)
            wanted = budget.plan()
            if wanted == budget.cost_reduction or (wanted == self._asked and step < self._retry_at):
                return
            self._asked, self._retry_at = wanted, step + _RETRY_STEPS
        self._ask(wanted)

    def status(self) -> Budget | None:
        with self._lock:
            return None if self._budget is None else self._budget.status()


class ICostReduction(Protocol):
    """What is given up: a frozen dataclass, so that two are equal which give up the same."""

    @property
    def every_factor(self) -> int:
        """By which each setting's ``every`` is multiplied."""

    def sentences(self) -> list[str]:
        """Return what was given up, in words."""


@dataclass(frozen=True)
class Ladder:
    """Stages, the first of which gives up nothing.

    Attributes
    ----------
    stages : sequence of ICostReduction
        Each costs less than the one before; all with ``every_factor`` 1, which the budget sets.
    apply : callable
        Gives the settings in force of what was asked for under a reduction.
    """

    stages: Sequence[Any]
    apply: Callable[[Settings, Any], dict[str, dict[str, Any]]]


class CostBudget:
    """Compares traced with control steps, and decides what to give up. Pure arithmetic: no clock, no thread,
    no device.

    Rank 0 has one. Each step it observes how long the step took (:meth:`observe`), and what it then wants is
    read from :meth:`plan`. The other ranks need :class:`Design` and the ladder alone. :meth:`status` may
    be called from any thread.

    What is compared is step time, so whatever tracing does to the job is in it: hooks, copies, contention of
    the tracer's thread for the interpreter and the memory. What the other steps pay when only every n-th is
    traced (a look at a flag for each hook) is not.

    The part of the cost that the training thread spends in the tracer is known by its clock. Where that alone
    is above the limit, nothing has to be compared: it is acted on after 16 traced steps.

    Sampling is given up first, by factors up to 16, then compression in four stages, and sampling up to 64 at
    last. Something is given up when the cost is above the limit beyond doubt, or after 1,536 steps more
    likely than not, and taken back, the newest first, when the 95 % interval stays below the limit with it.
    Compression that is taken back in vain is tried half as often each time.

    Parameters
    ----------
    limit : float
        Per cent of step time; see :func:`parse_budget`.
    ladder : Ladder
        What can be given up.
    seed : int
        Shared by all ranks.
    share : float
        Share of control steps, above 0 and at most 1/4.

    Raises
    ------
    TracerError
        When a number is outside of its range.
    """

    def __init__(self, limit: float, ladder: Ladder, seed: int = 0, share: float = SHARE) -> None:
        if not 0 < limit <= 100:
            raise TracerError(
                f"A budget must be per cent of step time, above 0 and at most 100, got {limit!r:.50}."
            )
        if not 0 < share <= 0.25:
            raise TracerError(
                f"The share of control steps must be above 0 and at most 0.25, got {share!r:.50}."
            )
        self.limit = limit
        self._ladder = ladder
        self.seed = seed
        self.share = share
        self._settings: dict[str, dict[str, Any]] = {}
        self._estimate = ShiftEstimate()
        self._in_force = self._wanted = self._ladder.stages[0]
        self._answer: Budget = {"limit": limit, "state": "measuring", "gave_up": []}
        self._at = self._block = -1
        self._start_over()

    @property
    def cost_reduction(self) -> Any:
        return self._in_force

    @property
    def cycle(self) -> int:
        """Steps from one traced step to the next."""
        return self._design.cycle

    def follow(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what the user asked for; a change of it restores everything and starts a new measurement."""
        asked = {name: dict(setting) for name, setting in settings.items()}
        if asked != self._settings:
            self._settings = asked
            self._start_over()

    def control(self, step: int) -> bool:
        """Return whether nothing is to be traced in this step; equal on all ranks."""
        return self._design.is_control(self.seed, step)

    def observe(self, step: int, traced: bool, wall_ns: int, spent_ns: int = 0) -> None:
        """Count one training step.

        Parameters
        ----------
        step : int
            Its number. Steps that are never observed, such as the ones before a resume, are left out of the
            comparison.
        traced : bool
            False for a control step, True for every other, also where no flag was due.
        wall_ns : int
            How long it took, without what it waited for somebody (a pause).
        spent_ns : int
            How much of that the training thread was inside of the tracer.
        """
        if traced and spent_ns and self._wanted == self._in_force:
            self._own.add(step, wall_ns, spent_ns)
            own = self._own.shift(_SURE)
            if own is not None and self._percent(own.low) > self.limit:
                self._give_up(own)
        index, within = divmod(step, self._design.cycle)
        if within >= self._window:
            return
        if index != self._at:
            self._end_cycle()
            self._at, self._sum, self._seen, self._traced = index, 0, 0, traced
        self._sum += wall_ns
        self._seen += traced == self._traced

    def plan(self) -> Any:
        """Return what should be given up; where it differs, all ranks apply it and call :meth:`applied`."""
        return self._wanted

    def applied(self, cost_reduction: Any) -> None:
        """Take what is given up from the step that begins now."""
        compressed_alike = replace(cost_reduction, every_factor=1) == replace(self._in_force, every_factor=1)
        self._in_force = self._wanted = cost_reduction
        self._since = 0
        if not compressed_alike:
            self._estimate.clear()
        self._lay_out()
        self._answer = self._state()

    def apply(self) -> dict[str, dict[str, Any]]:
        """Return the settings in force: the user's, less what is given up."""
        return self._ladder.apply(self._settings, self._in_force)

    def status(self) -> Budget:
        """Return the ``Budget`` object of ``status``. ``percent`` may be below 0, where noise is larger than
        the cost.
        """
        design = self._design
        sentences = [f"1 traced step in {design.block // design.run} is left out, to compare with."]
        answer, cost_reduction = self._answer, self._in_force
        return {**answer, "limit": self.limit, "gave_up": [*sentences, *cost_reduction.sentences()]}

    # Measuring.

    def _start_over(self) -> None:
        self._in_force = self._wanted = self._ladder.stages[0]
        self._estimate.clear()
        self._since = 0
        self._patience = _PATIENCE
        self._tried_up = False
        self._lay_out()
        self._answer = self._state()

    def _lay_out(self) -> None:
        everies = [
            setting.get("every", 1)
            for setting in self.apply().values()
            if "train" in setting.get("phases", ("train",))
        ]
        cycle = min(max(everies, default=1), _LONGEST_CYCLE)
        self._design = Design(cycle, self.share)
        self._own = OwnCost(cycle)
        # Where all flags meet in one step, what it left to do is over by the end of the next. Else a cycle is
        # taken as a whole.
        self._window = min(cycle, 2) if len(set(everies)) < 2 else cycle
        self._at = self._block = -1
        self._sum = self._seen = 0
        self._traced = False
        self._times: dict[int, tuple[int, bool]] = {}

    def _end_cycle(self) -> None:
        if self._at < 0 or self._seen < self._window:
            return
        block, position = divmod(self._at, self._design.block)
        if block != self._block:
            self._end_block()
            self._block = block
        self._times[position] = (self._sum, self._traced)

    def _end_block(self) -> None:
        times, self._times = self._times, {}
        design = self._design
        position = design.position(self.seed, self._block) if self._block >= 0 else -1
        control, traced = times.pop(position, (0, True))
        if traced or control <= 0:
            return
        first = design.run - 1
        # Where steps are their own cycles, the step after a control is as relieved as a first control is
        # burdened.
        relieved = position + 1 if design.run == 2 else -1
        others = [
            wall
            for at, (wall, traced) in times.items()
            if traced and at >= first and at != relieved and wall > 0
        ]
        if len(others) < design.block // 2:
            return
        self._estimate.add([float(wall) for wall in others], float(control), self._window)
        self._since += 1
        self._decide()

    # Deciding.

    def _decide(self) -> None:
        blocks = len(self._estimate)
        # Asking anew after each block of many would only repeat the answer.
        if blocks < _FIRST_BLOCKS or self._since % max(1, blocks // 16):
            return
        self._answer = self._state()
        if self._wanted != self._in_force or self._since < _FIRST_BLOCKS:
            return
        usual, sure = self._estimate.shift(), self._estimate.shift(_SURE)
        if usual is None or sure is None:
            return
        if self._percent(sure.low) > self.limit or (self._long and self._percent(usual.value) > self.limit):
            self._give_up(usual)
        elif self._since >= self._patience:
            self._wanted = self._more(usual) or self._in_force

    def _give_up(self, shift: Shift) -> None:
        self._wanted = self._less(shift) or self._in_force
        if self._tried_up and self._wanted != self._in_force:
            self._patience = min(2 * self._patience, _MOST_PATIENCE)
            self._tried_up = False

    @property
    def _long(self) -> bool:
        """Whether this cost reduction has been measured for long enough to go by the estimate alone."""
        return self._since * self._design.block * self._design.cycle >= _ENOUGH_STEPS

    def _percent(self, excess: float, factor: int | None = None) -> float:
        """Return ``excess`` steps per cycle as per cent of step time, also under another factor."""
        longer = 1.0 if factor is None else factor / self._in_force.every_factor
        return 100.0 * excess / (self._design.cycle * longer)

    def _less(self, shift: Shift) -> Any:
        now = self._in_force
        for factor in _FACTORS:
            if factor > now.every_factor and self._percent(shift.value, factor) <= _HEADROOM * self.limit:
                return replace(now, every_factor=factor)
        if now.every_factor < _FACTORS[-1]:
            # Even so it is not enough, and what comes next is measured under it.
            return replace(now, every_factor=_FACTORS[-1])
        coarser = self._next_level(now, 1)
        if coarser is not None:
            return coarser
        later = [factor for factor in _LAST_FACTORS if factor > now.every_factor]
        enough = [factor for factor in later if self._percent(shift.value, factor) <= _HEADROOM * self.limit]
        return replace(now, every_factor=(enough or later[-1:])[0]) if later else None

    def _more(self, shift: Shift) -> Any:
        now = self._in_force
        for factor in (*_FACTORS, *_LAST_FACTORS):
            if factor < now.every_factor and self._percent(shift.high, factor) <= _HEADROOM * self.limit:
                return replace(now, every_factor=factor)
        if self._percent(shift.high) <= _HEADROOM * self.limit / 2:
            finer = self._next_level(now, -1)
            self._tried_up = finer is not None
            return finer
        return None

    def _next_level(self, now: Any, direction: int) -> Any:
        """Return the next stage of compression that changes anything of what the user asked for."""
        stages = self._ladder.stages
        plain = replace(now, every_factor=1)
        at = stages.index(plain) if plain in stages else 0
        here = self._ladder.apply(self._settings, plain)
        while 0 <= at + direction < len(stages):
            at += direction
            if self._ladder.apply(self._settings, stages[at]) != here:
                return replace(stages[at], every_factor=now.every_factor)
        return None

    def _state(self) -> Budget:
        shift = self._estimate.shift()
        blocks = len(self._estimate)
        steps = self._estimate.steps
        answer: Budget = {"limit": self.limit, "state": "measuring", "steps": steps, "gave_up": []}
        if shift is None or blocks < _FIRST_BLOCKS:
            return answer
        percent, low, high = (self._percent(value) for value in (shift.value, shift.low, shift.high))
        if percent <= self.limit:
            answer["state"] = "inside" if high <= self.limit or self._long else "measuring"
        elif self._less(shift) is None:
            answer["state"] = "over"
        answer["percent"] = percent
        if math.isfinite(low) and math.isfinite(high):
            answer["low"], answer["high"] = low, high
        return answer
