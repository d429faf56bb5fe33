"""Serves a run of ours to clients of a foreign hub: as a viewer of our hub, with a port for the clients."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import http
import ipaddress
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.http11 import Request, Response

from ...protocol import ProtocolError, decode_message, encode_message
from ...protocol.messages_generated import FlagInfo, Hello, Message
from ..connections import join_hub
from ..discovery import HubEntry
from .dialect import DialectError
from .peer_message import read_message

_MOST_CLIENTS = 16

LOOPBACK = "127.0.0.1"
_LOCAL = r"localhost|127\.0\.0\.1|\[::1\]"
_MOST_REQUEST = 1 << 20


class GatewayClient:
    """The queue of one client. Beyond ``queue_bytes`` the oldest updates are given up and counted."""

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
        """Send ``start`` once it is known, before any update."""
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
    return json.dumps({"type": "error", "message": message})


def address_of(host: str, port: int) -> str:
    return f"ws://{_in_address(host)}:{port}"


async def open_server(
    handler: Callable[[ServerConnection], Awaitable[None]], port: int, host: str = LOOPBACK
) -> Server:
    """Listen, and hand each connection that is admitted to ``handler``.

    A client is admitted that asks for this machine as ``localhost`` or under ``host``; a browser's page must
    be from there, too.

    Raises
    ------
    DialectError
        ``bad-parameter`` when the port is in use, or the host names no single address.
    """
    if _is_unspecified(host):
        raise DialectError(
            "bad-parameter",
            f"The host must be an address or a name under which clients find this machine, got {host}: "
            "pages of other sites could not be told from its own.",
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


class HubViewer:
    """Joins the hub whose run a gateway serves, as one viewer like any other; an async context manager.

    ``hello`` is the newest one, with the configuration in force.
    """

    hello: Hello

    def __init__(self, entry: HubEntry, name: str) -> None:
        self._entry = entry
        self._name = name
        self._connection: ClientConnection | None = None

    async def __aenter__(self) -> HubViewer:
        """Connect and join; raises ``DialectError`` (``unreachable``)."""
        try:
            self._connection, self.hello = await join_hub(
                self._entry,
                "viewer",
                self._name,
                max_size=512 << 20,
                # What the hub still sends is not read any more.
                close_timeout=0.5,
            )
        except (OSError, InvalidHandshake, asyncio.TimeoutError, ConnectionClosed) as error:
            raise DialectError("unreachable", "The run's hub could not be reached.") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def say(self, message: Message) -> None:
        """Send a control message; nothing when the hub is gone."""
        assert self._connection is not None
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(encode_message(message))

    async def read(self) -> Message | bytes | None:
        """Return the next message, or the bytes of the next frame; None when the run or its hub has ended.

        A hub stays for its viewers; a gateway does not keep it alive.
        """
        assert self._connection is not None
        try:
            data = await self._connection.recv()
        except ConnectionClosed:
            return None
        if isinstance(data, bytes):
            return data
        message = decode_message(data)
        if message["type"] == "hello":
            self.hello = message
        elif message["type"] == "configured":
            self.hello["config"] = message["config"]
        elif message["type"] == "goodbye" or (message["type"] == "status" and message["state"] == "finished"):
            return None
        return message


class HubGateway(abc.ABC):
    """What all gateways have: the hub, the clients, and the messages common to all dialects.

    Clients find this machine under ``host``. Of what waits for one client beyond ``queue_bytes`` the oldest
    updates are given up.
    """

    peer: str
    """How it names itself to the hub."""

    def __init__(self, entry: HubEntry, port: int, host: str = LOOPBACK, queue_bytes: int = 64 << 20) -> None:
        self._hub = HubViewer(entry, self.peer)
        self._port, self._host = port, host
        self._queue_bytes = queue_bytes
        self._clients: set[GatewayClient] = set()
        self._given_up = 0

    @property
    def dropped(self) -> int:
        """Updates that slow clients were not sent."""
        return self._given_up + sum(client.dropped for client in self._clients)

    async def run(self, ready: Callable[[int], None]) -> None:
        """Serve until the hub ends. ``ready`` takes the port.

        Raises ``DialectError``: ``bad-parameter`` when the port is in use, ``unreachable`` when the hub is.
        """
        async with self._hub, await open_server(self._serve, self._port, self._host) as server:
            ready(next(iter(server.sockets)).getsockname()[1])
            await self._follow()

    @abc.abstractmethod
    async def _follow(self) -> None:
        """Pass on what the hub sends, until it ends."""

    @abc.abstractmethod
    async def _take(self, client: GatewayClient, message: dict[str, Any]) -> None:
        """Take a message of a client that is no ping."""

    def _work(self, client: GatewayClient) -> list[Coroutine[Any, Any, None]]:
        """Return what runs for a client as long as it is connected, besides sending."""
        return []

    def _forget(self, client: GatewayClient) -> None:  # noqa: B027
        """Forget a client that went."""

    def _traced(self, client: GatewayClient, flag: str) -> FlagInfo | None:
        """Return the hub's entry of a flag; None, after an error to the client, where it cannot be traced."""
        info = next((each for each in self._hub.hello["flags"] if each["name"] == flag), None)
        if info is not None and info["layers"]:
            return info
        reason = info and info.get("reason")
        client.put(error_text(f"{flag} cannot be traced. {reason or 'The model has no such point.'}"))
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        if len(self._clients) >= _MOST_CLIENTS:
            await connection.close(1013, "too many clients")
            return
        client = GatewayClient(connection, self._queue_bytes)
        self._clients.add(client)
        tasks = [asyncio.create_task(each) for each in (client.send_queue(), *self._work(client))]
        try:
            async for data in connection:
                await self._received(client, data)
        except ConnectionClosed:
            pass
        finally:
            self._clients.discard(client)
            self._given_up += client.dropped
            self._forget(client)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _received(self, client: GatewayClient, data: str | bytes) -> None:
        try:
            message = read_message(data if isinstance(data, str) else data.decode("utf-8"))
        except ValueError:
            client.put(error_text("Expected a JSON object with a type."))
            return
        if message["type"] == "ping":
            client.put('{"type": "pong"}')
        else:
            await self._take(client, message)


def refusal_text(error: ProtocolError) -> str:
    """Return the message of what is wrong with a request, and where."""
    return error_text(f"{error.message} (at {error.field})" if error.field else error.message)
