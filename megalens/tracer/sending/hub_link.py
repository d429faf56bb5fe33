"""One WebSocket connection to a hub, used by the producer thread."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidURI
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from ...protocol import SUBPROTOCOL, ProtocolError, decode_message, encode_message
from ...protocol.messages_generated import Hello, Message, Peer
from .hub_process import HubAddress

__all__ = ["HubLink", "HubLinkLost"]

_OPEN_SECONDS = 10.0
_MAX_MESSAGE = 1 << 20


class HubLinkLost(ConnectionError):
    """The connection to the hub broke or could not be opened."""


class HubLink:
    """A connection that has joined as a producer.

    Parameters
    ----------
    address : HubAddress
        Where the hub is.
    peer : dict
        The ``Peer`` object of ``join``.
    received : callable
        Called in a thread of the link's own with each control message, and once with None when the connection is gone.

    Raises
    ------
    HubLinkLost
        When the hub cannot be reached or refuses.
    """

    def __init__(
        self,
        address: HubAddress,
        peer: Peer,
        received: Callable[[HubLink, Message | ProtocolError | None], None],
    ) -> None:
        self._received = received
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

    def send(self, data: str | bytes) -> None:
        """Send one frame. It may wait for the socket, never for longer than the hub lives.

        Raises
        ------
        HubLinkLost
            When the connection is gone.
        """
        try:
            self._ws.send(data)
        except (ConnectionClosed, OSError) as error:
            raise HubLinkLost(_why(error)) from error

    def close(self) -> None:
        """End the connection in order."""
        with contextlib.suppress(Exception):
            self._context.close()
        self._reader.join(2.0)

    def abort(self) -> None:
        """Cut the connection at once, from any thread."""
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
                try:
                    self._received(self, decode_message(data))
                except ProtocolError as error:
                    self._received(self, error)
        except (ConnectionClosed, OSError):
            pass
        finally:
            self._received(self, None)


def _open(address: HubAddress, context: contextlib.ExitStack) -> ClientConnection:
    try:
        connection = connect(
            address.url,
            additional_headers={"Authorization": f"Bearer {address.token}"},
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            open_timeout=_OPEN_SECONDS,
            close_timeout=5.0,
            # The hub pings; a second heartbeat would only wake this process.
            ping_interval=None,
            max_size=_MAX_MESSAGE,
            proxy=None,
        )
        # As a context manager, which is what every version of websockets asks for.
        return context.enter_context(connection)
    except (InvalidHandshake, InvalidMessage, InvalidURI, OSError, TimeoutError) as error:
        raise HubLinkLost(_why(error)) from error


def _why(error: Exception) -> str:
    if isinstance(error, ConnectionClosed):
        close = error.rcvd or error.sent
        if close is not None and close.reason:
            return f"it closed the connection: {close.reason[:200]}"
        return "the connection broke"
    return str(error)[:200] or type(error).__name__
