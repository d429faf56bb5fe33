"""In what order a rank does its operations: as a plan says it, or by what has arrived."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Protocol

from .placement import Placement
from .plan_type import Operation

__all__ = ["FixedOrder", "GreedyOrder", "IOrder"]


class IOrder(Protocol):
    """Says what a rank does next."""

    dynamic: bool
    """Whether only this rank knows the order."""

    def begin(self) -> None:
        """Begin a step."""

    def arrived(self, letter: str, virtual: int, micro_batch: int) -> None:
        """Note that what an operation needs is there: activations (``F``) or a gradient (``B``)."""

    def next(self) -> Operation | None:
        """Take the operation to be done next; None where something has to arrive before, or nothing is left."""

    def ended(self, operation: Operation) -> None:
        """Note that an operation is done."""

    @property
    def over(self) -> bool:
        """Whether nothing is left."""


class FixedOrder:
    """Follows a list; what an operation needs is waited for.

    Parameters
    ----------
    operations : sequence of Operation
        In order.
    """

    dynamic = False

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations, self._at = operations, 0

    def begin(self) -> None:
        """Begin a step."""
        self._at = 0

    def arrived(self, letter: str, virtual: int, micro_batch: int) -> None:
        """Note that what an operation needs is there."""

    def next(self) -> Operation | None:
        """Take the next operation."""
        if self.over:
            return None
        self._at += 1
        return self._operations[self._at - 1]

    def ended(self, operation: Operation) -> None:
        """Note that it is done."""

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self._at >= len(self._operations)


class GreedyOrder:
    """Backward passes first, then forward passes, of those whose inputs have arrived; by depth the two take turns while both can be done.

    Each choice costs the logarithm of what is ready, however many micro-batches there are.

    Parameters
    ----------
    layout : Placement
        What the pipeline is like.
    held : sequence of int
        The rank's virtual stages, by chunk.
    prefer : str
        Of several, ``breadth``: all micro-batches of a chunk before the next chunk; ``depth``: all chunks of as many micro-batches as there are stages before further ones.
    in_flight : int or None
        Micro-batches that may be under way in the pipeline, for its memory.
    training : bool
        Whether there are backward passes.
    """

    dynamic = True

    def __init__(
        self,
        layout: Placement,
        held: Sequence[int],
        prefer: str,
        in_flight: int | None,
        training: bool = True,
    ) -> None:
        self._layout, self._held, self._training = layout, tuple(held), training
        self._chunk = {virtual: chunk for chunk, virtual in enumerate(self._held)}
        self._most = in_flight
        # By depth the two take turns while both can be done: with several chunks a step is longer where backward passes always come first.
        self._turns = prefer == "depth"
        self._rank: Callable[[int, int], tuple[int, int, int]] = (
            (lambda chunk, number: (number // layout.stages, chunk, number))
            if prefer == "depth"
            else (lambda chunk, number: (0, chunk, number))
        )
        self.begin()

    def begin(self) -> None:
        """Begin a step."""
        layout = self._layout
        self._last = ""
        passes = sum(len(layout.passing(virtual)) for virtual in self._held)
        self._left = passes * (2 if self._training else 1)
        self._forward: list[tuple[tuple[int, int, int], Operation]] = []
        self._backward: list[tuple[tuple[int, int, int], Operation]] = []
        # Micro-batches that have not entered here, by virtual stage, the next one last.
        self._outside: dict[int, list[int]] = {}
        for virtual in self._held:
            if layout.is_first(virtual):
                self._outside[virtual] = list(reversed(layout.passing(virtual)))
                most = len(self._outside[virtual])
                for _ in range(most if self._most is None or not self._training else min(self._most, most)):
                    self._enter(virtual)

    def arrived(self, letter: str, virtual: int, micro_batch: int) -> None:
        """Note that what an operation needs is there."""
        self._push(Operation(letter, virtual, micro_batch))

    def next(self) -> Operation | None:
        """Take the best of what can be done; None where nothing can."""
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
        """Note that an operation is done."""
        kind, virtual, number = operation
        self._left -= 1
        if kind == "F" and self._training and self._layout.is_last(virtual):
            self._push(Operation("B", virtual, number))
        elif kind == "B" and self._outside.get(virtual):
            self._enter(virtual)

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self._left == 0

    def _enter(self, virtual: int) -> None:
        if self._outside[virtual]:
            self._push(Operation("F", virtual, self._outside[virtual].pop()))

    def _push(self, operation: Operation) -> None:
        kind, virtual, number = operation
        chunk = self._chunk[virtual]
        if kind == "B":
            heapq.heappush(self._backward, (self._rank(len(self._held) - 1 - chunk, number), operation))
        else:
            heapq.heappush(self._forward, (self._rank(chunk, number), operation))
