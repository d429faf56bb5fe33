"""Messages over one non-blocking TCP socket, and the queue of other threads in front of it.

Rank 0's part in agreeing on a change: all processes take it at one step, or none does.
"""

from __future__ import annotations

import contextlib
import enum
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ....protocol import ProtocolError
from .schedule import Schedule

_HEADER = struct.Struct("<4sIIQ")
_MAGIC = b"MLC1"
_META_BYTES = 4 << 20
_PAYLOAD_BYTES = 1 << 30
_UNPROVED_BYTES = 4096
_READ_BYTES = 1 << 20

_EARLY_BYTES = 64 << 20
_NO_PAYLOAD = 1 << 20
"""Up to so many bytes are taken for messages without a payload."""


class Outgoing(NamedTuple):
    """A message to a rank."""

    rank: int
    kind: MessageKind
    meta: Mapping[str, Any]
    payload: Any


class Outbox:
    """Messages for the peers' thread. An instrument's wait for a leader that is not found yet.

    The first steps may be over before. ``put`` queues a message at its connection and returns whether it was
    taken; ``lost`` is called when an instrument's message was given up, and with it perhaps a description
    that later ones refer to.
    """

    def __init__(self, put: Callable[[Outgoing], bool], lost: Callable[[], None]) -> None:
        self._put = put
        self._lost = lost
        self._new: deque[Outgoing] = deque()
        self._early: deque[Outgoing] = deque()
        self._early_bytes = 0
        self.given_up = 0
        """Messages of instruments that could not be sent."""

    @property
    def waiting(self) -> bool:
        """Whether messages wait for their leader."""
        return bool(self._early)

    def add(self, message: Outgoing) -> None:
        """Take a message, from any thread."""
        self._new.append(message)

    def empty(self, connected: Callable[[int], bool]) -> None:
        """Send what can be sent; in the peers' thread."""
        while self._early and connected(self._early[0].rank):
            message = self._early.popleft()
            self._early_bytes -= len(message.payload)
            self._send(message)
        while self._new:
            message = self._new.popleft()
            if message.kind is not MessageKind.INSTRUMENT or connected(message.rank):
                self._send(message)
                continue
            self._early.append(message)
            self._early_bytes += len(message.payload)
            if self._early_bytes > _EARLY_BYTES and len(self._early) > 1:
                self._early_bytes -= len(self._early.popleft().payload)
                self._give_up()

    def _send(self, message: Outgoing) -> None:
        if not self._put(message) and message.kind is MessageKind.INSTRUMENT:
            self._give_up()

    def _give_up(self) -> None:
        self.given_up += 1
        self._lost()


class MessageKind(enum.IntEnum):
    CHALLENGE = 1
    ANSWER = 2
    WELCOME = 3
    HEARTBEAT = 4
    HUB = 5
    PREPARE = 6
    READY = 7
    REFUSE = 8
    COMMIT = 9
    ABORT = 10
    INSTRUMENT = 11
    SHUTDOWN = 12


class ChannelError(ConnectionError):
    """The other side is gone, or does not speak this protocol."""


@dataclass(frozen=True)
class Message:
    kind: MessageKind
    meta: dict[str, Any]
    payload: memoryview


class Channel:
    """One connected socket, which the channel owns, and what waits on it in both directions.

    ``queue_bytes`` is the payload that may wait to be sent; more is refused by :meth:`put`, unless no other
    payload waits: its memory is there already.
    """

    def __init__(self, sock: socket.socket, queue_bytes: int = 64 << 20) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._queue_bytes = queue_bytes
        self._out: deque[memoryview] = deque()
        self.waiting = 0
        """Bytes that wait to be sent."""
        self.trusted = False
        """Whether the other side has shown that it knows the secret; before that it may say very little."""
        self._head = bytearray()
        self._body = bytearray()
        self._filled = 0
        self._expected: tuple[MessageKind, int, int] | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def put(self, kind: MessageKind, meta: Mapping[str, Any], payload: Any = b"") -> bool:
        """Queue a message; False when too much waits and the payload was not taken."""
        view = memoryview(payload).cast("B") if payload is not None else memoryview(b"")
        beside = self.waiting > _NO_PAYLOAD and self.waiting + len(view) > self._queue_bytes
        if len(view) > _PAYLOAD_BYTES or (len(view) and beside):
            return False
        text = json.dumps(meta, separators=(",", ":"), allow_nan=False).encode()
        self._out.append(memoryview(_HEADER.pack(_MAGIC, kind, len(text), len(view)) + text))
        self.waiting += _HEADER.size + len(text) + len(view)
        if len(view):
            self._out.append(view)
        return True

    def flush(self) -> bool:
        """Send what the socket takes; return whether something still waits. Raises :class:`ChannelError`."""
        while self._out:
            try:
                sent = self._socket.send(self._out[0])
            except (BlockingIOError, InterruptedError):
                return True
            except OSError as error:
                raise ChannelError(f"the connection broke ({error.strerror or error})") from error
            self.waiting -= sent
            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]
        return False

    def receive(self) -> list[Message]:
        """Return the messages that are complete by now; raises :class:`ChannelError`."""
        messages: list[Message] = []
        while True:
            wanted = _HEADER.size if self._expected is None else len(self._body)
            if self._expected is not None and self._filled == wanted:
                messages.append(self._finish())
                continue
            try:
                if self._expected is None:
                    chunk = self._socket.recv(_HEADER.size - len(self._head))
                    self._head += chunk
                    count = len(chunk)
                else:
                    space = memoryview(self._body)[self._filled : self._filled + _READ_BYTES]
                    count = self._socket.recv_into(space)
                    self._filled += count
            except (BlockingIOError, InterruptedError):
                return messages
            except OSError as error:
                raise ChannelError(f"the connection broke ({error.strerror or error})") from error
            if count == 0:
                if messages:
                    # What came before the end counts; the next call sees the end.
                    return messages
                raise ChannelError("the connection was closed")
            if self._expected is None and len(self._head) == _HEADER.size:
                self._begin()

    def close(self) -> None:
        """Close the socket. Safe twice."""
        self._out.clear()
        with contextlib.suppress(OSError):
            self._socket.close()

    def _begin(self) -> None:
        magic, kind, meta, payload = _HEADER.unpack(self._head)
        self._head = bytearray()
        limits = (_META_BYTES, _PAYLOAD_BYTES) if self.trusted else (_UNPROVED_BYTES, 0)
        if magic != _MAGIC or meta > limits[0] or payload > limits[1]:
            raise ChannelError("something else than a process of this job is at the other end")
        try:
            self._expected = (MessageKind(kind), meta, payload)
        except ValueError as error:
            raise ChannelError(f"a message of an unknown kind {kind} came") from error
        self._body = bytearray(meta + payload)
        self._filled = 0

    def _finish(self) -> Message:
        assert self._expected is not None
        kind, size, _ = self._expected
        body, self._expected, self._body = self._body, None, bytearray()
        try:
            meta = json.loads(bytes(body[:size]))
        except (ValueError, RecursionError) as error:
            raise ChannelError("a message that is not JSON came") from error
        if not isinstance(meta, dict):
            raise ChannelError("a message that is not an object came")
        return Message(kind, meta, memoryview(body)[size:])


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
