"""What the other side of a WebSocket can make a connection hold and do, bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import ClientConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from ..protocol import Pace


class HalfOpen:
    """Lets few connections be half open at once, and always the newest.

    Who is allowed in shows the token in the first packet. Where more than ``most`` are half open, the oldest is cut off, of the address that has
    the most of them: whoever opens thousands and says nothing pushes out his own, and not those who come to speak.

    Parameters
    ----------
    most : callable
        Returns how many may be half open now.
    cut_off : callable
        Told of each that is cut off.
    """

    def __init__(self, most: Callable[[], int], cut_off: Callable[[], None]) -> None:
        self._most = most
        self._cut_off = cut_off
        # By age. An aborted transport counts no more, although its socket is closed a little later.
        self._waiting: dict[Any, str] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, transport: Any) -> None:
        """Count in a connection that was just accepted."""
        address = transport.get_extra_info("peername")
        self._waiting[transport] = str(address[0]) if address else ""
        while len(self._waiting) > max(1, self._most()):
            [(crowd, _)] = Counter(self._waiting.values()).most_common(1)
            oldest = next(each for each, place in self._waiting.items() if place == crowd)
            self.end(oldest)
            oldest.abort()
            self._cut_off()

    def end(self, transport: Any) -> None:
        """Count out a connection that was let in or is gone. Safe twice."""
        with contextlib.suppress(KeyError):
            del self._waiting[transport]

    def close(self) -> None:
        """Cut off all of them."""
        for transport in list(self._waiting):
            self.end(transport)
            transport.abort()


if TYPE_CHECKING:
    from websockets.asyncio.connection import Connection
else:
    Connection = object

__all__ = ["BoundedClientConnection", "BoundedConnection", "HalfOpen"]

_PONG = b"\x8a"
_MOST_FRAGMENTS = 4096
_CONTROLS_AT_ONCE, _CONTROLS_A_SECOND = 1000, 50.0


class BoundedConnection(Connection):
    """Bounds pings, the pieces of a message, and the answers to pings that are not read. To be mixed into a connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fragments = 0
        self._controls = Pace(_CONTROLS_AT_ONCE, _CONTROLS_A_SECOND)
        self._pong = b""
        self._cut: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Take what came: called by the event loop. Who does not end a connection that was closed is not waited for."""
        super().data_received(data)
        if self._cut is None and self.protocol.state is State.CLOSING:
            self._cut = self.loop.call_later(self.close_timeout or 0, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of what is due: called by the event loop."""
        if self._cut is not None:
            self._cut.cancel()
        super().connection_lost(exc)

    def process_event(self, event: Any) -> None:
        """Take what was read: called by the base class for each event."""
        if self.protocol.state is State.OPEN and self._too_much(event):
            # Nothing that it sends afterwards is read.
            self.protocol.fail(1008, "too many small frames")
            self.send_data()
            return
        super().process_event(event)

    def resume_writing(self) -> None:
        """Send the pong that waited for the socket to take more: called by the event loop."""
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and self.protocol.state is State.OPEN:
            self.transport.write(pong)

    def send_data(self) -> None:
        """Write what the protocol has ready: called by the base class wherever it sends."""
        pieces = self.protocol.data_to_send()
        if self.paused:
            # The other side does not read. Of the pongs that it is owed only the newest is kept (RFC 6455, 5.5.3), until it does.
            pongs = [piece for piece in pieces if piece[:1] == _PONG]
            if pongs:
                self._pong = pongs[-1]
                pieces = [piece for piece in pieces if piece[:1] != _PONG]
        # An empty piece means the end of the stream.
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if whole:
            self.transport.write(whole)
        if pieces and not pieces[-1]:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            else:
                self.transport.close()

    def _too_much(self, event: Any) -> bool:
        """Whether pings, pongs or pieces of one message come in a number that costs more than they can mean."""
        if not isinstance(event, Frame):
            return False
        if event.opcode in (Opcode.PING, Opcode.PONG):
            return not self._controls.take()
        self._fragments = 0 if event.fin else self._fragments + 1
        return self._fragments > _MOST_FRAGMENTS


class BoundedClientConnection(BoundedConnection, ClientConnection):
    """A connection to a hub that need not be one of ours."""
