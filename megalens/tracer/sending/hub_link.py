"""One WebSocket connection to a hub, used by the producer thread."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidURI
from websockets.frames import Frame
from websockets.sync.client import ClientConnection, connect

from ...protocol import SUBPROTOCOL, Pace, ProtocolError, decode_message, encode_message
from ...protocol.connection import binary_head, hub_options
from ...protocol.messages_generated import Hello, Message, Peer
from .hub_process import HubAddress

_OPEN_SECONDS = 10.0
_MAX_MESSAGE = 1 << 20
_FRAMES_AT_ONCE, _FRAMES_A_SECOND = 200, 50.0
_MOST_WAITING = 64
_MOST_PIECES = 64
"""Systems take no more than some hundred in one call."""


class HubLinkLost(ConnectionError):
    """The connection to the hub broke or could not be opened."""


class HubLink:
    """A connection that has joined as a producer.

    ``received`` is called in a thread of the link's own with each control message, and once with None when
    the connection is gone. Raises :class:`HubLinkLost` when the hub cannot be reached or refuses.
    """

    def __init__(
        self,
        address: HubAddress,
        peer: Peer,
        received: Callable[[HubLink, Message | ProtocolError | None], None],
    ) -> None:
        self._received = received
        self._slots = threading.Semaphore(_MOST_WAITING)
        self._context = contextlib.ExitStack()
        self._ws = _open(address, self._context)
        try:
            self.send(
                encode_message({"type": "join", "protocol": SUBPROTOCOL, "role": "producer", "peer": peer})
            )
            self.hello = self._first()
        except BaseException:
            self.abort()
            raise
        self._reader = threading.Thread(target=self._read, name="megalens-control", daemon=True)
        self._reader.start()

    def send(self, data: str | bytes | Sequence[bytes | memoryview]) -> None:
        """Send one message, or a data frame in pieces; raises :class:`HubLinkLost`.

        It may wait for the socket, never for longer than the hub lives.
        """
        try:
            if isinstance(data, (str, bytes)):
                self._ws.send(data)
            else:
                self._ws.send_pieces(data)
        except (ConnectionClosed, OSError) as error:
            raise HubLinkLost(_why(error)) from error

    def taken(self) -> None:
        """Note that one of the received messages has been dealt with."""
        self._slots.release()

    def close(self) -> None:
        """Close the connection in order."""
        self._ws.left.set()
        with contextlib.suppress(Exception):
            self._context.close()
        self._reader.join(2.0)

    def abort(self) -> None:
        """Cut the connection at once, from any thread."""
        self._ws.left.set()
        with contextlib.suppress(OSError):
            self._ws.socket.shutdown(socket.SHUT_RDWR)

    def _first(self) -> Hello:
        try:
            message = decode_message(self._ws.recv(_OPEN_SECONDS), allowed=("hello", "error", "goodbye"))
        except TimeoutError as error:
            raise HubLinkLost("the hub did not answer join within 10 s") from error
        except (ConnectionClosed, OSError) as error:
            raise HubLinkLost(_why(error)) from error
        except ProtocolError as error:
            raise HubLinkLost(error.message) from error
        if message["type"] != "hello":
            raise HubLinkLost(message.get("message", "the hub is going away"))
        return message

    def _read(self) -> None:
        try:
            for data in self._ws:
                # Nothing is read while the thread that answers is busy: what waits is as little as the
                # socket takes.
                while not self._slots.acquire(timeout=0.5):
                    if self._ws.left.is_set():
                        return
                try:
                    self._received(self, decode_message(data))
                except ProtocolError as error:
                    self._received(self, error)
        except (ConnectionClosed, OSError):
            pass
        finally:
            self._received(self, None)


class _PacedConnection(ClientConnection):
    """Reads no more than a hub has reason to send, be it pings, pieces or messages.

    Reading takes the interpreter from the training.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.left = threading.Event()
        self._pace = Pace(_FRAMES_AT_ONCE, _FRAMES_A_SECOND)
        super().__init__(*args, **kwargs)

    def process_event(self, event: Any) -> None:
        """Pace the base class, which calls this for each frame in its own thread."""
        if isinstance(event, Frame):
            # A large one costs as much as many small ones.
            cost = 1 + (len(event.data) >> 15)
            if not self._pace.take(cost):
                self.left.wait(cost / _FRAMES_A_SECOND)
        super().process_event(event)

    def send_pieces(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Send a binary message in pieces, without a copy to a hub of this machine.

        A copy takes as long as all else that is done to send the frames of a step. What a client sends is
        masked, so that no program can make a browser write what a proxy takes for a request (RFC 6455,
        section 10.3). On a loopback connection nothing is between the two: the mask is zeros, which leave the
        pieces as they are.
        """
        if not self._near or len(pieces) > _MOST_PIECES:
            self.send(b"".join(pieces))
            return
        parts = [binary_head(sum(map(len, pieces)), masked=True), *pieces]
        with self.send_context():
            # What the protocol has to say itself goes first.
            self.send_data()
            sent = self.socket.sendmsg(parts)
            if sent < sum(map(len, parts)):
                self.socket.sendall(memoryview(b"".join(parts))[sent:])

    @cached_property
    def _near(self) -> bool:
        """Whether this is a plain connection within this machine."""
        if isinstance(self.socket, ssl.SSLSocket) or not hasattr(self.socket, "sendmsg"):
            return False
        return ipaddress.ip_address(self.socket.getpeername()[0]).is_loopback


def _open(address: HubAddress, context: contextlib.ExitStack) -> _PacedConnection:
    try:
        connection = connect(
            address.url,
            open_timeout=_OPEN_SECONDS,
            close_timeout=5.0,
            # The hub pings; a second heartbeat would only wake this process.
            ping_interval=None,
            max_size=_MAX_MESSAGE,
            create_connection=_PacedConnection,
            **hub_options(address.token, SUBPROTOCOL),
        )
        # As a context manager, which is what every version of websockets asks for.
        opened = context.enter_context(connection)
        assert isinstance(opened, _PacedConnection)
        return opened
    except (InvalidHandshake, InvalidMessage, InvalidURI, OSError, TimeoutError) as error:
        raise HubLinkLost(_why(error)) from error


def _why(error: Exception) -> str:
    if isinstance(error, ConnectionClosed):
        close = error.rcvd or error.sent
        if close is not None and close.reason:
            return f"it closed the connection: {close.reason[:200]}"
        return "the connection broke"
    return str(error)[:200] or type(error).__name__
