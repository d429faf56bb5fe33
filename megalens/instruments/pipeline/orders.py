"""The order of a rank's operations: a plan's, or by what has arrived."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .errors import PipelineError
from .plan_type import Operation, Placement, Plan, check_plan

NAMES = (
    *("gpipe", "1f1b", "interleaved_1f1b", "depth_first", "breadth_first", "megadpp"),
    *("zb_h1", "zb_h2", "zb_v", "dualpipe", "dualpipev"),
)
"""The planner's schedules, as in ``protocol/pipeline.schema.json``, without ``search``, which needs times."""

_PREFER = ("breadth", "depth")


# What a pipeline runs: a plan, or a rule by which each rank chooses.
@dataclass(frozen=True)
class GreedyRule:
    """Backward passes first, then forward passes, of those whose inputs have arrived.

    Attributes
    ----------
    prefer : str
        ``breadth`` or ``depth``, of several that are ready.
    in_flight : int or None
        Most micro-batches under way in the pipeline; None: all.
    """

    prefer: str = "breadth"
    in_flight: int | None = None

    def __post_init__(self) -> None:
        if self.prefer not in _PREFER:
            raise PipelineError(f"prefer must be breadth or depth, got {self.prefer!r:.80}.")
        most = self.in_flight
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise PipelineError(
                f"in_flight must be a number of micro-batches from 1, or None, got {most!r:.80}."
            )

    def to_json(self) -> dict[str, Any]:
        return {"rule": "greedy", "prefer": self.prefer, "in_flight": self.in_flight}


OrderChoice = Plan | GreedyRule


def choice_of(given: Any, layout: Placement, rule: GreedyRule) -> OrderChoice | str:
    """Return a checked order; a name that only the planner can turn into a plan as it is.

    ``given`` is ``"greedy"`` (which is ``rule``), the name of a schedule, a plan, the path of one, or the
    JSON of either. Raises ``PipelineError`` for a wrong plan, or one of another pipeline.
    """
    if isinstance(given, GreedyRule):
        return given
    if isinstance(given, str):
        if given == "greedy":
            return rule
        if given in NAMES:
            return given
        if not given.endswith(".json"):
            raise PipelineError(
                f"order must be one of {', '.join((*NAMES, 'greedy', 'adaptive'))}, a plan, or the path of a "
                f".json file with one, got {given!r:.120}."
            )
    if isinstance(given, Mapping) and given.get("rule") == "greedy":
        return GreedyRule(given.get("prefer", rule.prefer), given.get("in_flight", rule.in_flight))
    plan = Plan.of(given)
    fits(plan, layout)
    check_plan(plan)
    return plan


def fits(plan: Plan, layout: Placement) -> None:
    """Raise ``PipelineError`` where a plan is for another pipeline."""
    if plan.layout == layout:
        return
    differences = [
        f"{getattr(plan.layout, name)} instead of {getattr(layout, name)} as {words}"
        for name, words in (
            ("kind", "placement"),
            ("stages", "stages"),
            ("chunks", "chunks of a stage"),
            ("micro_batches", "micro-batches"),
        )
        if getattr(plan.layout, name) != getattr(layout, name)
    ]
    raise PipelineError(
        f"The plan {plan.schedule!r} is for another pipeline: it has {', '.join(differences)}. Make one for "
        "this layout, or the schedule with placement= and n_microbatches= of the plan.",
        code="shape",
    )


def choice_from_json(given: Mapping[str, Any]) -> OrderChoice:
    """Return the order that another rank has checked and posted."""
    if given.get("rule") == "greedy":
        return GreedyRule(given["prefer"], given["in_flight"])
    return Plan.of(given)


def name_of(choice: OrderChoice) -> str:
    """Return a short name of an order."""
    return choice.schedule if isinstance(choice, Plan) else f"greedy ({choice.prefer} first)"


class IOrder(Protocol):
    """Decides what a rank does next."""

    dynamic: bool
    """Whether only this rank knows the order."""

    def begin(self) -> None: ...

    def arrived(self, letter: str, virtual: int, micro_batch: int) -> None:
        """Note the input of an operation: activations (``F``) or a gradient (``B``)."""

    def next(self) -> Operation | None:
        """Take the next operation; None where input is missing, or nothing is left."""

    def ended(self, operation: Operation) -> None: ...

    @property
    def over(self) -> bool: ...


class FixedOrder:
    """Follows a list; an operation's input is waited for."""

    dynamic = False

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations, self._at = operations, 0

    def begin(self) -> None:
        self._at = 0

    def arrived(self, letter: str, virtual: int, micro_batch: int) -> None: ...

    def next(self) -> Operation | None:
        if self.over:
            return None
        self._at += 1
        return self._operations[self._at - 1]

    def ended(self, operation: Operation) -> None: ...

    @property
    def over(self) -> bool:
        return self._at >= len(self._operations)


class GreedyOrder:
    """Ready backward passes first, then ready forward passes; by depth both take turns.

    Each choice costs the logarithm of what is ready, however many micro-batches there are. ``breadth``
    prefers all micro-batches of a chunk to the next chunk; ``depth`` all chunks of as many micro-batches as
    there are stages. ``in_flight`` bounds the micro-batches under way in the pipeline, for its memory.
    """

    dynamic = True

    def __init__(
        self,
        layout: Placement,
        chunks: Sequence[int],
        prefer: str,
        in_flight: int | None,
        training: bool = True,
    ) -> None:
        self._layout, self._chunks, self._training = layout, tuple(chunks), training
        self._chunk = {virtual: chunk for chunk, virtual in enumerate(self._chunks)}
        self._most = in_flight
        # By depth both take turns: with several chunks, backward passes first would make a step longer.
        self._turns = prefer == "depth"
        self._rank: Callable[[int, int], tuple[int, int, int]] = (
            (lambda chunk, number: (number // layout.stages, chunk, number))
            if prefer == "depth"
            else (lambda chunk, number: (0, chunk, number))
        )
        self.begin()

    def begin(self) -> None:
        layout = self._layout
        self._last = ""
        passes = sum(len(layout.passing(virtual)) for virtual in self._chunks)
        self._left = passes * (2 if self._training else 1)
        self._forward: list[tuple[tuple[int, int, int], Operation]] = []
        self._backward: list[tuple[tuple[int, int, int], Operation]] = []
        # Micro-batches that have not entered here, by virtual stage, the next one last.
        self._outside: dict[int, list[int]] = {}
        for virtual in self._chunks:
            if layout.is_first(virtual):
                self._outside[virtual] = list(reversed(layout.passing(virtual)))
                most = len(self._outside[virtual])
                for _ in range(most if self._most is None or not self._training else min(self._most, most)):
                    self._enter(virtual)

    def arrived(self, letter: str, virtual: int, micro_batch: int) -> None:
        self._push(Operation(letter, virtual, micro_batch))

    def next(self) -> Operation | None:
        """Take the best ready operation, or None."""
        first, second = (
            (self._forward, self._backward)
            if self._turns and self._last == "B"
            else (self._backward, self._forward)
        )
        ready = first or second
        if not ready:
            return None
        operation = heapq.heappop(ready)[1]
        self._last = operation.kind
        return operation

    def take(self, operation: Operation) -> None:
        """Take one that another rank chose, and whose input has arrived."""
        self._last = operation.kind
        ready = self._backward if operation.kind == "B" else self._forward
        ready.remove(next(each for each in ready if each[1] == operation))
        heapq.heapify(ready)

    def ended(self, operation: Operation) -> None:
        kind, virtual, number = operation
        self._left -= 1
        if kind == "F" and self._training and self._layout.is_last(virtual):
            self._push(Operation("B", virtual, number))
        elif kind == "B" and self._outside.get(virtual):
            self._enter(virtual)

    @property
    def over(self) -> bool:
        return self._left == 0

    def _enter(self, virtual: int) -> None:
        if self._outside[virtual]:
            self._push(Operation("F", virtual, self._outside[virtual].pop()))

    def _push(self, operation: Operation) -> None:
        kind, virtual, number = operation
        chunk = self._chunk[virtual]
        if kind == "B":
            heapq.heappush(self._backward, (self._rank(len(self._chunks) - 1 - chunk, number), operation))
        else:
            heapq.heappush(self._forward, (self._rank(chunk, number), operation))
