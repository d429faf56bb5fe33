"""Rank 0's part in agreeing on a change: all processes take it at one step, or none does."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....protocol import ProtocolError
from .channel import MessageKind
from .schedule import Schedule

_ANSWER_SECONDS = 2.0
_GATHER_SECONDS = 5.0
"""For so long after its start rank 0 decides nothing until every process of the job is connected: one that
connects after a decision has traced steps under settings that are not the others'. Chosen by hand: connecting
took under 1 s in every job that was watched, and a job of which only some ranks are traced waits no longer.
"""
_MOST_WAITING = 256
_MOST_AT_ONCE = 64


@dataclass(frozen=True)
class Proposal:
    """A change that somebody asks for: a ``ConfigPatch``.

    ``id`` is that of the ``configure`` message. ``answer`` takes the step of the change, or the error for
    which nothing has changed.
    """

    patch: Mapping[str, Any]
    id: str
    answer: Callable[[int | ProtocolError], None]


@dataclass
class _Round:
    number: int
    proposals: list[Proposal]
    waiting: set[int]
    first: int
    began: float = field(default_factory=time.monotonic)


class IPeers(Protocol):
    """The connections, as the agreement needs them."""

    def others(self) -> Mapping[int, str]:
        """Return the other processes that take part, with their names for people."""
        ...

    def complete(self) -> bool: ...

    def tell(self, rank: int, kind: MessageKind, meta: Mapping[str, Any]) -> None: ...


class Agreement:
    """Decides changes one after another in two rounds: all answer from which step on they can, then learn the
    latest.

    Everything that has come in the meantime is decided together. Called from the peers' thread only, but for
    :meth:`propose`.
    """

    def __init__(self, schedule: Schedule[Any], peers: IPeers) -> None:
        self._schedule = schedule
        self._peers = peers
        self._queue: deque[Proposal] = deque()
        self._round: _Round | None = None
        self._number = 0
        self._singly = 0
        self._gather_until = time.monotonic() + _GATHER_SECONDS

    def propose(self, proposal: Proposal) -> None:
        """Ask for a change, from any thread.

        The answer comes in the peers' thread, or at once when too many wait.
        """
        if len(self._queue) >= _MOST_WAITING:
            proposal.answer(
                ProtocolError(
                    "refused",
                    f"{_MOST_WAITING} changes wait already. Wait for an answer before the next one.",
                    expected=f"at most {_MOST_WAITING} changes at once",
                )
            )
            return
        self._queue.append(proposal)

    def tick(self) -> None:
        """Begin the next round, or give up one that takes too long."""
        current = self._round
        if current is None:
            if self._queue and (self._peers.complete() or time.monotonic() > self._gather_until):
                self._begin()
            return
        members = self._peers.others()
        current.waiting &= members.keys()
        if not current.waiting:
            self._settle(current)
        elif time.monotonic() - current.began > _ANSWER_SECONDS:
            names = ", ".join(members[rank] for rank in sorted(current.waiting)[:5])
            self._give_up(
                current,
                ProtocolError(
                    "refused",
                    f"No answer from {names} within {_ANSWER_SECONDS:g} s, so nothing was changed. Is it "
                    "stopped?",
                    expected="an answer from every process of the job",
                    got=f"none from {names}"[:1000],
                ),
            )

    def ready(self, rank: int, number: int, first: int) -> None:
        """Take a process's answer: it can from step ``first`` on."""
        current = self._round
        if current is None or current.number != number:
            return
        current.waiting.discard(rank)
        current.first = max(current.first, first)
        if not current.waiting:
            self._settle(current)

    def refused(self, rank: int, number: int, error: ProtocolError) -> None:
        """Take a process's refusal: nothing changes anywhere."""
        if self._round is not None and self._round.number == number:
            self._give_up(self._round, error)

    @property
    def busy(self) -> bool:
        """Whether a change is being decided or waits for it."""
        return self._round is not None or bool(self._queue)

    def close(self) -> None:
        """Answer all that still wait."""
        gone = ProtocolError("no-producer", "The training process went before it applied the change.")
        if self._round is not None:
            self._give_up(self._round, gone, retry=False)
        while self._queue:
            self._queue.popleft().answer(gone)

    def _begin(self) -> None:
        most = 1 if self._singly else _MOST_AT_ONCE
        self._singly = max(0, self._singly - 1)
        proposals = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        self._number += 1
        patches = [proposal.patch for proposal in proposals]
        try:
            first = self._schedule.prepare(self._number, patches, [proposal.id for proposal in proposals])
        except ProtocolError as error:
            self._refuse(proposals, error, retry=True)
            return
        members = self._peers.others()
        self._round = _Round(self._number, proposals, set(members), first)
        for rank in members:
            self._peers.tell(rank, MessageKind.PREPARE, {"number": self._number, "patches": patches})
        if not members:
            self._settle(self._round)

    def _settle(self, current: _Round) -> None:
        self._round = None
        self._schedule.commit(current.number, current.first)
        for rank in self._peers.others():
            self._peers.tell(rank, MessageKind.COMMIT, {"number": current.number, "step": current.first})
        for proposal in current.proposals:
            proposal.answer(current.first)

    def _give_up(self, current: _Round, error: ProtocolError, retry: bool = True) -> None:
        self._round = None
        self._schedule.abort(current.number)
        for rank in self._peers.others():
            self._peers.tell(rank, MessageKind.ABORT, {"number": current.number})
        self._refuse(current.proposals, error, retry and error.code != "refused")

    def _refuse(self, proposals: Sequence[Proposal], error: ProtocolError, retry: bool) -> None:
        if len(proposals) > 1 and retry:
            # One of several is at fault: each by itself.
            self._queue.extendleft(reversed(proposals))
            self._singly = len(proposals)
            return
        for proposal in proposals:
            proposal.answer(error)
