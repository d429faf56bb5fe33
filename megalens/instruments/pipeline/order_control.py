"""The order in force, and the step at which another one takes over.

The order of a pipeline as a setting of the run, so that viewers can change it like what is traced.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...protocol import ProtocolError, pipeline_settings
from ...protocol.messages_generated import Status
from ...tracer.instrument import Instrument
from .adaptive import Adaptive, Compare
from .board import Board
from .errors import PipelineError
from .executor import Done
from .orders import NAMES, GreedyRule, OrderChoice, choice_from_json, choice_of, name_of
from .plan_type import Placement, Plan

Planner = Callable[[str, Placement], Mapping[str, Any]]
"""Makes a plan of a schedule's name and a layout."""

_MOST_DECISIONS = 100
_log = logging.getLogger(__name__)


class OrderControl:
    """The order of one rank's pipeline, requested by the script, by settings or by measurements.

    ``rule`` is the meaning of ``"greedy"``. ``fixed_only``: only plans can run here, since ranks of the same
    stage are not known but need one order. ``planner`` and ``compare`` make and simulate plans.
    """

    def __init__(
        self,
        layout: Placement,
        stage: int,
        rule: GreedyRule,
        fixed_only: bool,
        planner: Planner,
        compare: Compare,
    ) -> None:
        self._layout, self._stage, self._rule, self._fixed_only = layout, stage, rule, fixed_only
        self._planner, self._compare = planner, compare
        self._board: Board
        self.order: OrderChoice = rule
        """The running order."""
        self.decisions: list[str] = []
        """Changes and their reasons; the newest last."""
        self._script: OrderChoice = rule
        self._step = 0
        self._lock = threading.Lock()
        self._pending: tuple[OrderChoice, str] | None = None
        self._posted: deque[int] = deque()
        self._adaptive: Adaptive | None = None
        self._wants_adaptive = False

    def checked(self, order: Any) -> OrderChoice | str | None:
        """Return a checked order, or None for the adaptive one; raises ``PipelineError``. Any thread."""
        if isinstance(order, str) and order == "adaptive":
            return None
        choice = choice_of(order, self._layout, self._rule)
        if isinstance(choice, GreedyRule) and self._fixed_only:
            raise PipelineError(
                "This stage is held by several ranks, which talk to each other in its passes (DDP, FSDP or "
                "DTensor): with an order that follows what has arrived "
                "they have to agree. Say peers=, the ranks that hold this stage, or take a plan."
            )
        return choice

    def start(self, board: Board, order: Any) -> None:
        """Agree on the order of the first step, the deciding rank's."""
        choice = self.checked(order)
        self._board = board
        if board.decides:
            try:
                # The adaptive order begins with what is known to be good, or with what needs no planner.
                first = choice or (self._planned("1f1b") if self._fixed_only else self._rule)
                made = self._planned(first) if isinstance(first, str) else first
                board.post(1, {**made.to_json(), "adaptive": choice is None})
            except Exception as error:
                # The others wait for it.
                board.post(1, {"error": f"The first rank could not make the order: {error}"})
        self._take(board.first())
        self._script = self.order

    def use(self, order: Any, why: str) -> None:
        """Change the order at the same step on all ranks; other ranks than the deciding one only check it."""
        choice = self.checked(order)
        if not self._board.decides:
            return
        self._wants_adaptive = choice is None
        if choice is None:
            self._ask(self.order, "adaptive begins with it")
        elif isinstance(choice, str):
            self._plan_apart(choice, why)
        else:
            self._ask(choice, why)

    def follow_settings(self, order: Any, step: int) -> None:
        """Change the order as the run's settings ask, which apply from a step of the trace on.

        A rank may receive settings after it has begun that step. For what is traced that does no harm; two
        ranks in different orders would. So settings, too, go by the board.
        """
        script = isinstance(order, str) and order == "script"
        self.use(self._script if script else order, f"the settings of the run, at step {step} of the trace")

    def begin_step(self) -> bool:
        """Begin a step, and return whether the order has changed."""
        self._step += 1
        board, step, before = self._board, self._step, self.order
        posted = board.look(step) if step > 1 else None
        if posted is not None:
            self._take(posted)
            self._posted.append(step)
        if board.decides:
            if self._posted and self._posted[0] < step:
                # All have begun that step, and so read it.
                board.forget(self._posted.popleft())
            with self._lock:
                pending, self._pending = self._pending, None
            if pending is not None:
                choice, why = pending
                board.post(step + 1, {**choice.to_json(), "adaptive": self._wants_adaptive})
                self._report(f"From step {step + 1} on {name_of(choice)}: {why}.")
        return self.order is not before

    def end_step(self, ms: float, done: Sequence[Done]) -> None:
        if self._adaptive is not None:
            self._adaptive.step_ended(self.order, name_of(self.order), ms, done)

    # Inside.

    def _take(self, posted: dict[str, Any]) -> None:
        self._adapt(bool(posted.pop("adaptive", False)))
        self.order = choice_from_json(posted)

    def _adapt(self, wanted: bool) -> None:
        """Start or stop choosing the order by measurements."""
        self._wants_adaptive = wanted
        if not wanted:
            self._adaptive = None
        elif self._adaptive is None:
            self._adaptive = Adaptive(
                self._layout,
                self._stage,
                self._board,
                # It looks in a thread of its own, and may come too late.
                lambda order, why: self._ask(order, why) if self._wants_adaptive else None,
                self._report,
                self._compare,
                not self._fixed_only,
            )

    def _ask(self, choice: OrderChoice, why: str) -> None:
        with self._lock:
            self._pending = choice, why

    def _planned(self, name: str) -> Plan:
        found = choice_of(self._planner(name, self._layout), self._layout, self._rule)
        assert isinstance(found, Plan)
        return found

    def _plan_apart(self, name: str, why: str) -> None:
        """Plan a schedule in another thread, so that no step waits for the planner."""

        def work() -> None:
            try:
                planned = self._planned(name)
            except Exception as error:
                self._report(f"{name} was asked for and could not be planned: {error}")
            else:
                self._ask(planned, why)

        threading.Thread(target=work, name="megalens-pipeline-plan", daemon=True).start()

    def _report(self, words: str) -> None:
        self.decisions.append(words)
        del self.decisions[:-_MOST_DECISIONS]
        _log.info("pipeline: %s", words)


_SAID = 5
_ORDERS = ("script", "greedy", "adaptive", *NAMES, "plan")


class PipelineInstrument(Instrument):
    """Changes a schedule's order by the run's settings, on all ranks at one step, the one after they apply.

    The name of a schedule is planned on the first rank meanwhile, and in force on all at a later step.
    """

    name = "pipeline"
    title = "Pipeline"

    def __init__(self, control: OrderControl) -> None:
        self._control = control
        self._settings: Mapping[str, Any] = {"order": "script"}

    @property
    def watches(self) -> bool:
        return False

    def settings(self) -> Mapping[str, Any]:
        """Return the last request; ``script`` is the script's own order."""
        return self._settings

    def schema(self) -> Mapping[str, Any]:
        return {
            "type": "object",
            "properties": {
                "order": {
                    "type": "string",
                    "enum": list(_ORDERS),
                    "default": "script",
                    "title": "Order",
                    "description": "script: as the training script says; greedy: what has arrived, backward "
                    "first; adaptive: what was fastest so far; plan: the one given; else a schedule by name.",
                },
                "prefer": {"type": "string", "enum": ["breadth", "depth"], "title": "Of greedy, first"},
                "in_flight": {"type": "integer", "minimum": 1, "title": "Of greedy, micro-batches under way"},
                "plan": {"type": "object", "title": "Plan"},
            },
        }

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        found = {name: value for name, value in settings.items() if value is not None}
        for name in found:
            if name not in ("order", "prefer", "in_flight", "plan"):
                raise _wrong(
                    f"The instrument pipeline has order, plan, prefer and in_flight, got {name!r:.80}.", name
                )
        order = found.setdefault("order", "script")
        plan = found.get("plan")
        # Whoever may change settings names no files of this machine.
        if order not in _ORDERS:
            raise _wrong(f"order must be one of {', '.join(_ORDERS)}, got {order!r:.80}.", "order")
        if plan is not None and not isinstance(plan, Mapping):
            raise _wrong(f"plan must be an object, got a {type(plan).__name__}.", "plan")
        if plan is not None and order != "plan":
            # The changed one of the two is meant.
            if plan == self._settings.get("plan"):
                del found["plan"]
            else:
                found["order"] = order = "plan"
        if order == "plan" and plan is None:
            raise _wrong("order plan needs the plan.", "plan")
        if order in ("script", "adaptive"):
            return found
        try:
            self._control.checked(found["plan"] if order == "plan" else self._asked(found))
            if order == "plan":
                pipeline_settings(plan)
        except PipelineError as error:
            raise _wrong(error.message, "plan" if order == "plan" else "order") from error
        return found

    def apply(self, step: int, settings: Mapping[str, Any]) -> None:
        if settings == self._settings:
            return
        self._settings = settings
        order = settings["order"]
        asked = settings["plan"] if order == "plan" else self._asked(settings)
        self._control.follow_settings(asked, step)

    def report(self, status: Status) -> None:
        """Add the settings, the running order, and the last changes with their reasons."""
        shown = {
            **{name: value for name, value in self._settings.items() if name != "plan"},
            "running": name_of(self._control.order),
            "decisions": list(self._control.decisions[-_SAID:]),
        }
        status.setdefault("instruments", {})[self.name] = shown

    @staticmethod
    def _asked(settings: Mapping[str, Any]) -> Any:
        if settings["order"] == "greedy":
            return {"rule": "greedy", **{k: settings[k] for k in ("prefer", "in_flight") if k in settings}}
        return settings["order"]


def _wrong(message: str, name: str) -> ProtocolError:
    return ProtocolError("bad-parameter", message, field=f"instruments.pipeline.{name}")
