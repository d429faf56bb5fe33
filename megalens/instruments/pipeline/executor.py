"""Runs a step's operations on one rank, and waits only where nothing else can be done."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .board import Together
from .chunk import StageChunk
from .errors import PipelineError
from .orders import IOrder
from .plan_type import Operation, Placement, words_of
from .stages.inbox import Arrival, Inbox, Key, StepBatch, shapes_text
from .stages.link import Link, drain, report_received, report_sent, spec_of

if TYPE_CHECKING:
    from ...tracer import Tracer

_clock = time.perf_counter_ns


class Done(NamedTuple):
    """A finished operation: times in ns of ``perf_counter_ns``, and ns of waiting before it."""

    operation: Operation
    began: int
    ended: int
    waited: int


class Executor:
    """One rank of a pipeline.

    After ``timeout`` seconds a missing message ends the step. ``headers`` says whether shapes change from
    message to message. ``together`` is there where several ranks have this stage and need one dynamic order.
    """

    def __init__(
        self,
        layout: Placement,
        stage: int,
        rank: int,
        chunks: Mapping[int, StageChunk],
        links: Mapping[int, Link],
        inbox: Inbox,
        *,
        timeout: float,
        headers: bool,
        together: Together | None = None,
    ) -> None:
        self._layout, self._stage, self._rank = layout, stage, rank
        self._chunks, self._links, self._inbox = chunks, links, inbox
        self._number = {virtual: at for at, virtual in enumerate(sorted(chunks))}
        self._timeout, self._headers, self._together = timeout, headers, together
        self._in_headers, self._direct = headers, True
        self._batch: StepBatch
        self.watch: Tracer | None = None
        # The same, in a step that it follows.
        self._watched: Tracer | None = None
        self.done: list[Done] = []
        """Operations of the last step."""

    # A step.

    def run(self, order: IOrder, batch: StepBatch, expected: Mapping[int, Sequence[Key | None]]) -> None:
        """Run a step; ``expected`` are the messages by stage, in order.

        Raises ``PipelineError``: ``waited`` or ``lost``, naming what was awaited; ``failed`` for an error of
        the model; ``shape``.
        """
        self.done = []
        watch = self.watch if self.watch is not None and self.watch.follows_passes else None
        self._watched = watch
        self._batch, self._in_headers = batch, self._headers or order.dynamic
        self._direct = not order.dynamic
        with self._inbox.lock:
            self._inbox.filed.clear()
            self._inbox.arrivals.clear()
            self._inbox.training = torch.is_grad_enabled()
        for stage, link in self._links.items():
            link.timed = watch is not None
            link.begin(expected.get(stage, ()), self._in_headers, order.dynamic)
        order.begin()
        while not order.over:
            before = _clock()
            operation = self._next(order)
            message = self._input(operation)
            began = _clock()
            if self._watched is not None:
                self._operate_watched(self._watched, operation, message, before)
            else:
                self._operate(operation, message)
            self.done.append(Done(operation, began, _clock(), began - before))
            order.ended(operation)
            if self._direct:
                for link in self._links.values():
                    link.post_ahead()
        # The step's data are nobody's any more.
        del self._batch
        self._drain()

    def exchange(
        self, peer_stage: int, part: int, theirs: int, tensors: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Exchange a part's weight gradients with the stage of the other copy, after all other messages."""
        link = self._links[peer_stage]
        self._inbox.specs["S", part] = spec_of(tensors)
        link.send(("S", theirs, 0), tensors, self._in_headers)
        before = _clock()
        message = self._wait_for(("S", part, 0), None, peer_stage)
        if self._watched is not None:
            report_received(self._watched, message, before, self._number[part], -1)
        self._drain()
        return [each for each in message.tensors if each is not None]

    def _operate_watched(
        self, watch: Tracer, operation: Operation, message: Arrival | None, before: int
    ) -> None:
        kind, virtual, number = operation
        chunk = self._number[virtual]
        if message is not None:
            report_received(watch, message, before, chunk, number)
        watch.operation_begins({"F": "forward", "W": "wgrad"}.get(kind, "backward"), chunk, number)
        try:
            self._operate(operation, message)
        finally:
            watch.operation_ends()

    def _operate(self, operation: Operation, message: Arrival | None) -> None:
        try:
            self._run(operation, message)
        except PipelineError as error:
            error.stage, error.rank = self._stage, self._rank
            raise
        except Exception as error:
            raise self._error(
                "failed",
                operation,
                f"Rank {self._rank} (stage {self._stage}) could not do {operation}, the "
                f"{words_of(operation)}: {type(error).__name__}: {str(error)[:400]}",
            ) from error

    def _run(self, operation: Operation, message: Arrival | None) -> None:
        kind, virtual, number = operation
        chunk, batch = self._chunks[virtual], self._batch
        if kind == "F":
            loss = batch.loss
            outputs = chunk.forward(
                number,
                self._inputs(operation, message),
                batch.kwargs[number],
                None if loss is None else lambda output: loss(output, number),
                batch.keep_outputs,
            )
            if not chunk.last:
                self._inbox.specs["B", virtual] = tuple(each for each in spec_of(outputs) if each[2])
                self._give(("F", virtual + 1, number), outputs, operation)
        elif kind == "W":
            chunk.backward_weight(number)
        else:
            if message is None:
                gradients: Sequence[Any] = (torch.tensor(batch.scale, device=chunk.stage.device),)
            else:
                gradients = message.tensors
            found = (chunk.backward if kind == "B" else chunk.backward_input)(number, gradients)
            if not chunk.first:
                self._give(("B", virtual - 1, number), found, operation)

    def _inputs(self, operation: Operation, message: Arrival | None) -> tuple[Any, ...]:
        if message is None:
            return self._batch.args[operation.micro_batch]
        if message.peer < 0:
            return message.tensors
        grad = torch.is_grad_enabled()
        spec = self._inbox.specs["F", operation.virtual]
        return tuple(
            each.requires_grad_() if grad and takes and each is not None else each
            for each, (_, _, takes) in zip(message.tensors, spec, strict=True)
        )

    def _give(self, key: Key, tensors: Sequence[Tensor], operation: Operation) -> None:
        stage = self._layout.stage_of(key[1])
        if stage == self._stage:
            copies = tuple(each.detach().requires_grad_(each.requires_grad) for each in tensors)
            self._inbox.put(key, Arrival(copies))
            return
        before = self._links[stage].send(key, tensors, self._in_headers)
        if before is not None:
            raise self._error(
                "shape",
                operation,
                f"{operation} gave {shapes_text(spec_of(tensors))}, and micro-batches before gave "
                f"{shapes_text(before)}. Where shapes change from one to the next, say static_shapes=False "
                "on every rank.",
            )

    # Waiting.

    def _next(self, order: IOrder) -> Operation:
        if not order.dynamic:
            found = order.next()
            assert found is not None
            return found
        if self._together is not None and not self._together.leads:
            try:
                chosen = self._together.chosen(self._timeout)
            except PipelineError as error:
                error.stage, error.rank = self._stage, self._rank
                raise
            self._input(chosen, take=False)
            self._hear(order)
            order.take(chosen)  # type: ignore[attr-defined]
            return chosen
        deadline = time.monotonic() + self._timeout
        while True:
            self._hear(order)
            found = order.next()
            if found is not None:
                if self._together is not None:
                    self._together.choose(found)
                return found
            with self._inbox.changed:
                self._starve(True)
                while not self._inbox.arrivals:
                    self._wait(deadline, None)
                self._starve(False)

    def _hear(self, order: IOrder) -> None:
        arrivals = self._inbox.arrivals
        while arrivals:
            key = arrivals.popleft()
            if key[0] != "S":
                order.arrived(*key)

    def _source(self, operation: Operation) -> tuple[Key, int] | None:
        """Return an operation's input message from another virtual stage, and the sending stage."""
        kind, virtual, number = operation
        if kind == "F" and not self._chunks[virtual].first:
            return ("F", virtual, number), self._layout.stage_of(virtual - 1)
        if kind in "BI" and not self._chunks[virtual].last:
            return ("B", virtual, number), self._layout.stage_of(virtual + 1)
        return None

    def _input(self, operation: Operation, *, take: bool = True) -> Arrival | None:
        """Wait for an operation's input message, where it has one, and take it from the inbox or leave it."""
        source = self._source(operation)
        return None if source is None else self._wait_for(source[0], operation, source[1], take=take)

    def _wait_for(self, key: Key, operation: Operation | None, stage: int, *, take: bool = True) -> Arrival:
        inbox = self._inbox
        link = self._links.get(stage)
        if self._direct and link is not None and key not in inbox.filed:
            self._receive(link, key, operation)
        with inbox.lock:
            if key not in inbox.filed:
                deadline = time.monotonic() + self._timeout
                # Needed messages may be behind others: all links receive anything while nothing can be done.
                self._starve(True)
                while key not in inbox.filed:
                    self._wait(deadline, operation)
                self._starve(False)
            message = inbox.filed[key]
            if take:
                del inbox.filed[key]
                if link is not None:
                    link.taken()
        for work in message.works:
            work.wait()
        return message

    def _receive(self, link: Link, key: Key, operation: Operation | None) -> None:
        """Receive from a link, in a fixed order, until a message is there."""
        if self._inbox.failure is not None:
            raise self._lost(operation, *self._inbox.failure)
        try:
            link.receive(key, self._timeout)
        except TimeoutError:
            raise self._late(operation) from None
        except (RuntimeError, ValueError, IndexError) as error:
            raise self._lost(operation, link.peer, error) from error

    def _starve(self, hungry: bool) -> None:
        for link in self._links.values():
            link.starve(hungry)

    def _wait(self, deadline: float, operation: Operation | None) -> None:
        """Wait for the inbox to change. The caller has the lock."""
        if self._inbox.failure is not None:
            raise self._lost(operation, *self._inbox.failure) from self._inbox.failure[1]
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._late(operation)
        self._inbox.changed.wait(left)

    def _lost(self, operation: Operation | None, peer: int, error: BaseException) -> PipelineError:
        reason = str(error).partition(". ")[0][:300]
        return self._error(
            "lost",
            operation,
            f"Rank {self._rank} (stage {self._stage}) waited for {self._awaited(operation)} when its "
            f"connection to rank {peer} failed: {reason}. Rank {peer} is gone, or is stuck in an error of "
            "its own: see what it said.",
        )

    def _late(self, operation: Operation | None) -> PipelineError:
        return self._error(
            "waited",
            operation,
            f"Rank {self._rank} (stage {self._stage}) waited {self._timeout:.3g} s for "
            f"{self._awaited(operation)}, and it did not come: that rank, or one before it, is stopped or "
            "stuck, or runs another order. timeout= of the schedule sets this limit.",
        )

    def _awaited(self, operation: Operation | None) -> str:
        if operation is None:
            peers = ", ".join(str(link.peer) for link in self._links.values())
            return f"anything from its neighbours (ranks {peers})" if peers else "its own messages"
        source = self._source(operation)
        where = "" if source is None else f" from rank {self._links[source[1]].peer} (stage {source[1]})"
        what = "the activations" if operation.kind == "F" else "the gradient"
        return f"{what}{where} that {operation} needs, the {words_of(operation)}"

    def _drain(self) -> None:
        """Wait until everything is sent: nothing else is left to do."""
        links = [*self._links.values()]
        drain(self._inbox, links, self._timeout, partial(self._lost, None), lambda _: self._late(None))
        if self._watched is not None:
            for link in links:
                report_sent(self._watched, link, self._giver)

    def _giver(self, key: Key) -> int:
        """Return the chunk that produced a message."""
        return self._number.get(key[1] + {"F": -1, "B": 1}.get(key[0], 1 << 20), -1)

    def _error(self, code: str, operation: Operation | None, message: str) -> PipelineError:
        return PipelineError(
            message,
            code=code,
            operation=None if operation is None else str(operation),
            stage=self._stage,
            micro_batch=None if operation is None else operation.micro_batch,
            rank=self._rank,
        )
