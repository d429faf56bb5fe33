"""A WebSocket connection for a stream of frames: each is taken where it is read, and what waits is sent in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from ..protocol.websocket_head import binary_head
from .bounded_connection import BoundedConnection
from .half_open import HalfOpen

__all__ = ["BatchConnection"]

_LARGE_BYTES = 64 * 1024
_DATA = (Opcode.TEXT, Opcode.BINARY)
_MOST_HEAD_BYTES = 16 * 1024


class BatchConnection(BoundedConnection, ServerConnection):
    """A server connection with one system call for several small messages, no copy of a large one, and no queue before who takes frames.

    The head of its request is bounded.

    Parameters
    ----------
    half_open : HalfOpen
        Counts the connection until it is let in.
    *args, **kwargs
        As of the base class.

    Attributes
    ----------
    take_frame : callable or None
        Called with each whole binary message as soon as it is read, in its order: never while a message before it waits or is being worked on.
        Returns whether it took the message; one that it did not take, and everything after it, waits for :meth:`recv`.
    """

    def __init__(self, *args: Any, half_open: HalfOpen, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.take_frame: Callable[[bytes], bool] | None = None
        self._half_open = half_open
        self._waiting = 0
        self._head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Count the connection as half open: called by the event loop."""
        super().connection_made(transport)
        self._half_open.begin(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of its place: called by the event loop."""
        self._half_open.end(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came: called by the event loop. A request that has no end is not read on."""
        if self.protocol.state is State.CONNECTING:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self.transport.abort()
                return
        super().data_received(data)

    def let_in(self) -> None:
        """Say that it is half open no more."""
        self._half_open.end(self.transport)

    def process_event(self, event: Any) -> None:
        """Take what was read: called by the base class for each event."""
        if isinstance(event, Frame) and event.opcode in _DATA:
            if (
                event.opcode is Opcode.BINARY
                and event.fin
                and not self._waiting
                and self.take_frame is not None
                and self.take_frame(bytes(event.data))
            ):
                return
            self._waiting += 1
        super().process_event(event)

    def message_done(self) -> None:
        """Say that a message of :meth:`recv` has been worked on to its end."""
        self._waiting -= 1

    async def send_batch(self, messages: Iterable[str | tuple[bytes, memoryview]]) -> None:
        """Send several messages, each one a WebSocket message of its own, and wait until the socket takes more.

        Parameters
        ----------
        messages : iterable
            Text, or the two parts of a binary message.

        Raises
        ------
        websockets.exceptions.ConnectionClosed
            When the connection is closed.
        """
        async with self.send_context():
            # What the protocol has to say itself goes first.
            self.send_data()
            pieces: list[bytes | memoryview] = []
            for message in messages:
                if isinstance(message, str):
                    self.protocol.send_text(message.encode())
                    pieces += self.protocol.data_to_send()
                    continue
                header, body = message
                pieces += (binary_head(len(header) + len(body), masked=False), header)
                if len(body) < _LARGE_BYTES:
                    pieces.append(body)
                    continue
                # A first part goes with what is before it: small packets of their own would wake the reader for nothing.
                pieces.append(body[:_LARGE_BYTES])
                self.transport.write(b"".join(pieces))
                self.transport.write(body[_LARGE_BYTES:])
                pieces.clear()
            if pieces:
                self.transport.write(b"".join(pieces))

    def send_now(self, text: str, limit: int) -> bool:
        """Send a text message without waiting, and return whether it was sent: not when the connection ends or ``limit`` bytes wait already."""
        if self.protocol.state is not State.OPEN or self.transport.get_write_buffer_size() > limit:
            return False
        self.protocol.send_text(text.encode())
        self.send_data()
        return True
