"""Chooses the order by measured steps, and explains the choice."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .board import Board
from .executor import Done
from .orders import GreedyRule, OrderChoice, name_of
from .plan_type import Placement, Plan

Compare = Callable[[Placement, Mapping[str, Any], Plan | None], Sequence[tuple[Mapping[str, Any], float]]]
"""Takes a layout, ``PipelineTimes``, and a running plan; returns plans with simulated ms, that one first."""

_WINDOW, _SETTLE = 10, 2
_SIGMAS = 2.0
_DRIFT, _LEAST = 3.0, 0.02
"""A change beyond this multiple of the uncertainty, at least this share of a step, is the machine's."""


@dataclass
class Measured:
    """Steps of one order: how long they took, in ms."""

    order: OrderChoice
    name: str
    steps: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return sum(self.steps) / len(self.steps)

    @property
    def error(self) -> float:
        """The uncertainty of the mean: twice its standard error."""
        if len(self.steps) < 2:
            return math.inf
        variance = sum((each - self.mean) ** 2 for each in self.steps) / (len(self.steps) - 1)
        return _SIGMAS * math.sqrt(variance / len(self.steps))


class Adaptive:
    """Measures the running order, tries what promises more than its own uncertainty, and stays with what is
    faster.

    A window is ten steps of one order; the two after a change are not counted. On the deciding rank another
    thread looks at a full window: no step waits for it. Ranks post the durations of their operations on the
    ``board``. ``ask`` takes an order and its reason, ``report`` a sentence about one that stays. Without
    ``compare``, which simulates plans, only the greedy rules are tried, if ``rules`` allows them.
    """

    def __init__(
        self,
        layout: Placement,
        stage: int,
        board: Board,
        ask: Callable[[OrderChoice, str], None],
        report: Callable[[str], None],
        compare: Compare | None,
        rules: bool = True,
    ) -> None:
        self._layout, self._stage, self._board = layout, stage, board
        self._ask, self._report, self._compare = ask, report, compare
        # With one chunk both are the same.
        both = (GreedyRule("breadth"), GreedyRule("depth")) if layout.chunks > 1 else (GreedyRule("breadth"),)
        self._rules = both if rules else ()
        self._known: dict[str, Measured] = {}
        self._now: Measured | None = None
        self._incumbent: Measured | None = None
        self._skip = _SETTLE
        self._sums: dict[str, list[float]] = {}
        self._busy = threading.Event()
        self._tried: set[str] = set()
        self._settled: Measured | None = None

    def step_ended(self, order: OrderChoice, name: str, ms: float, done: Sequence[Done]) -> None:
        """Take a step: its order, its duration on this rank, and its operations."""
        now = self._now
        if now is None or now.order != order:
            self._now = now = Measured(order, name)
            self._skip = _SETTLE
            self._sums.clear()
        if self._skip:
            self._skip -= 1
            return
        if len(now.steps) >= _WINDOW:
            # The window continues until it has been judged.
            del now.steps[0]
        now.steps.append(ms)
        for (kind, virtual, _), began, ended, _ in done:
            sums = self._sums.setdefault(f"{kind}{virtual}", [0.0, 0])
            sums[0] += (ended - began) / 1e6
            sums[1] += 1
        if len(now.steps) < _WINDOW or self._busy.is_set():
            return
        self._board.publish(
            f"times/{self._stage}", {name: total / count for name, (total, count) in self._sums.items()}
        )
        if self._board.decides:
            self._busy.set()
            full = Measured(now.order, now.name, list(now.steps))
            threading.Thread(
                target=self._look, args=(full,), name="megalens-pipeline-adaptive", daemon=True
            ).start()
        now.steps.clear()
        self._sums.clear()

    def _look(self, full: Measured) -> None:
        try:
            self._decide(full)
        except Exception as error:
            self._report(f"The order stays {full.name}: {type(error).__name__}: {str(error)[:300]}")
        finally:
            self._busy.clear()

    def _decide(self, full: Measured) -> None:
        """Judge what ran against what ran before, then look for better, in a thread of the deciding rank."""
        self._known[full.name] = full
        before = self._incumbent
        if before is not None and before.name != full.name:
            gain, unsure = before.mean - full.mean, math.hypot(before.error, full.error)
            if gain <= unsure:
                self._tried.add(full.name)
                self._ask(
                    before.order,
                    f"{_took(full)}, which is not faster than {_took(before)} by more than their "
                    f"uncertainty, {unsure:.3g} ms",
                )
                return
            self._report(f"{full.name} stays: {_took(full)}, and {_took(before)}")
        self._incumbent = full
        settled = self._settled
        if settled is not None and abs(full.mean - settled.mean) > _DRIFT * max(
            full.error, settled.error, _LEAST * full.mean
        ):
            self._report(
                f"Steps of {full.name} took {settled.mean:.3g} ms and now take {full.mean:.3g}: other orders "
                "are looked at anew"
            )
            self._tried.clear()
            self._settled = None
        found = self._best(full)
        if found is None:
            if self._settled is None:
                self._report(
                    f"The order stays {full.name}, of which {_took(full)}: nothing else promises more than "
                    "the uncertainty"
                )
                self._settled = full
            return
        self._settled = None
        order, why = found
        self._ask(order, why)

    def _best(self, full: Measured) -> tuple[OrderChoice, str] | None:
        times, busiest = self._times()
        if times is None:
            return None
        best: tuple[float, OrderChoice, str] | None = None
        if self._compare is not None:
            running = full.order if isinstance(full.order, Plan) else None
            plans = list(self._compare(self._layout, times, running))
            # The simulation's error for the measured plan may also be that of others; a rule cannot be
            # simulated.
            simulated = plans[0][1] if running is not None and plans else full.mean
            scale = full.mean / simulated if simulated > 0 else 1.0
            unsure = math.hypot(
                full.error, abs(full.mean - simulated) if running is not None else 0.1 * full.mean
            )
            for given, ms in plans[1:] if running is not None else plans:
                plan = Plan.of(given)
                gain = full.mean - ms * scale
                if plan.schedule not in self._tried and gain > unsure and (best is None or gain > best[0]):
                    why = (
                        f"{_took(full)}, and {plan.schedule} should take {ms * scale:.3g} ms, less by more "
                        f"than the uncertainty, {unsure:.3g} ms"
                    )
                    best = gain, plan, why
        if best is None:
            idle = full.mean - busiest
            for rule in self._rules:
                name = name_of(rule)
                if name not in self._tried and name != full.name and idle > full.error:
                    why = (
                        f"{_took(full)}, of which the busiest stage waits {idle:.3g} ms: it is tried whether "
                        "it waits less"
                    )
                    return rule, why
            return None
        return best[1], best[2]

    def _times(self) -> tuple[dict[str, Any] | None, float]:
        """Return ``PipelineTimes`` by virtual stage and the busiest one's ms; None until all have posted."""
        layout = self._layout
        forward, inputs, weights = ([0.0] * layout.virtual_stages for _ in range(3))
        busiest = 0.0
        for stage in range(layout.stages):
            posted = self._board.last_post(f"times/{stage}")
            if posted is None:
                return None, 0.0
            busy = 0.0
            for virtual in layout.held_by(stage):
                forward[virtual] = posted.get(f"F{virtual}", 0.0)
                if f"I{virtual}" in posted:
                    inputs[virtual], weights[virtual] = posted[f"I{virtual}"], posted.get(f"W{virtual}", 0.0)
                else:
                    inputs[virtual] = weights[virtual] = posted.get(f"B{virtual}", 0.0) / 2
                busy += (forward[virtual] + inputs[virtual] + weights[virtual]) * len(layout.passing(virtual))
            busiest = max(busiest, busy)
        if layout.kind == "two_way":
            # Of each part of the model there are two copies.
            half = layout.stages
            forward, inputs, weights = (
                [(a + b) / 2 for a, b in zip(each[:half], each[half:], strict=True)]
                for each in (forward, inputs, weights)
            )
        return {"forward": forward, "input_gradient": inputs, "weight_gradient": weights}, busiest


def _took(measured: Measured) -> str:
    return f"a step of {measured.name} took {measured.mean:.3g} ± {measured.error:.2g} ms"
