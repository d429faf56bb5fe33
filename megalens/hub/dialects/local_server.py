"""A port for clients that bring no token: on loopback unless another address is given, and closed to pages of other sites."""

from __future__ import annotations

import asyncio
import contextlib
import http
import ipaddress
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from .errors import DialectError

__all__ = ["LOOPBACK", "address_of", "open_server", "GatewayClient", "error_text"]

LOOPBACK = "127.0.0.1"
_LOCAL = r"localhost|127\.0\.0\.1|\[::1\]"
_MOST_REQUEST = 1 << 20


# One client of a gateway, with its bounded queue.
class GatewayClient:
    """What waits for one client.

    Parameters
    ----------
    connection : ServerConnection
        Its socket.
    queue_bytes : int
        Bound of what waits; beyond it the oldest is given up and counted.
    """

    def __init__(self, connection: ServerConnection, queue_bytes: int) -> None:
        self.flags: set[str] | None = None
        self.dropped = 0
        self._connection = connection
        self._bound = queue_bytes
        self._bytes = 0
        self._queue: deque[str] = deque()
        self._filled = asyncio.Event()
        self._started = False

    def start(self, message: Callable[[], str | None]) -> None:
        """Send ``start`` once it can be said, before any update."""
        if not self._started:
            text = message()
            if text is not None:
                self._started = True
                self.put(text)

    def put(self, text: str) -> None:
        """Queue a message. Never waits."""
        self._queue.append(text)
        self._bytes += len(text)
        while self._bytes > self._bound and len(self._queue) > 1:
            oldest = next(
                (at for at, each in enumerate(self._queue) if each.startswith('{"type":"update"')), 0
            )
            self._bytes -= len(self._queue[oldest])
            del self._queue[oldest]
            self.dropped += 1
        self._filled.set()

    async def send_queue(self) -> None:
        """Send what waits, until cancelled or the client is gone."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._filled.wait()
                if not self._queue:
                    self._filled.clear()
                    continue
                text = self._queue.popleft()
                self._bytes -= len(text)
                await self._connection.send(text)


def error_text(message: str) -> str:
    """Return the message that says an error."""
    return json.dumps({"type": "error", "message": message})


def address_of(host: str, port: int) -> str:
    """Return where clients connect to."""
    return f"ws://{_in_address(host)}:{port}"


async def open_server(
    handler: Callable[[ServerConnection], Awaitable[None]], port: int, host: str = LOOPBACK
) -> Server:
    """Listen, and hand each connection that is admitted to ``handler``.

    A client is admitted that asks for this machine as ``localhost`` or under ``host``; a browser's page must be from there, too.

    Parameters
    ----------
    handler : callable
        Serves one connection.
    port : int
        Port; 0 takes any free one.
    host : str
        Address or name under which clients find this machine.

    Raises
    ------
    DialectError
        ``bad-parameter`` when the port is in use, or the host names no single address.
    """
    if _is_unspecified(host):
        raise DialectError(
            "bad-parameter",
            f"The host must be an address or a name under which clients find this machine, got {host}: pages of other sites could not be told from its own.",
        )
    ours = re.compile(f"({_LOCAL}|{re.escape(_in_address(host).lower())})(:[0-9]{{1,5}})?")

    def admit(connection: ServerConnection, request: Request) -> Response | None:
        hosts = request.headers.get_all("Host")
        if len(hosts) != 1 or not ours.fullmatch(hosts[0].lower()):
            return connection.respond(http.HTTPStatus.FORBIDDEN, f"Ask for {host}.\n")
        for origin in request.headers.get_all("Origin"):
            scheme, _, name = origin.lower().partition("://")
            if scheme not in ("http", "https") or not ours.fullmatch(name):
                return connection.respond(
                    http.HTTPStatus.FORBIDDEN, "Only pages of this machine may connect.\n"
                )
        return None

    try:
        return await serve(
            handler,
            host,
            port,
            process_request=admit,
            compression=None,
            max_size=_MOST_REQUEST,
            ping_timeout=None,
            close_timeout=2,
            server_header=None,
        )
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DialectError(
            "bad-parameter", f"Could not listen on {host}:{port}: {reason}. Choose another --port."
        ) from error


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host
