"""Messages over one non-blocking TCP socket, and the queue of other threads in front of it."""

from __future__ import annotations

import contextlib
import enum
import json
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

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
