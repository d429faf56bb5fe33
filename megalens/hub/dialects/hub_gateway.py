"""Serving a run of ours to clients of a foreign hub: one viewer of our hub on one side, a port on the other."""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from ...protocol import SUBPROTOCOL, ProtocolError, decode_message, encode_message
from ...protocol.messages_generated import FlagInfo, Hello, Join, Message, Peer
from ...protocol.version import own_version
from ..discovery import HubEntry
from .errors import DialectError
from .local_server import LOOPBACK, GatewayClient, error_text, open_server
from .peer_message import read_message

__all__ = ["HubGateway", "refusal_text"]

_MOST_CLIENTS = 16


# A gateway's connection to the hub whose run it serves: one viewer like any other.
class HubViewer:
    """Joins a hub as a viewer, as an async context manager.

    Parameters
    ----------
    entry : HubEntry
        The hub.
    name : str
        How the gateway names itself.

    Attributes
    ----------
    hello : Hello
        The newest ``hello``, with the configuration in force.
    """

    hello: Hello

    def __init__(self, entry: HubEntry, name: str) -> None:
        self._entry = entry
        self._peer: Peer = {"name": name, "version": own_version()}
        self._connection: ClientConnection | None = None

    async def __aenter__(self) -> HubViewer:
        """Connect and join.

        Raises
        ------
        DialectError
            ``unreachable``.
        """
        try:
            self._connection = await connect(
                self._entry.address,
                additional_headers={"Authorization": f"Bearer {self._entry.token}"},
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                compression=None,
                proxy=None,
                max_size=512 << 20,
                ping_interval=None,
                # What the hub still sends is not read any more.
                close_timeout=0.5,
            )
            join: Join = {
                "type": "join",
                "protocol": SUBPROTOCOL,
                "role": "viewer",
                "peer": self._peer,
            }
            await self._connection.send(encode_message(join))
            hello = decode_message(await self._connection.recv(), allowed=("hello",))
        except (OSError, InvalidHandshake, asyncio.TimeoutError, ConnectionClosed) as error:
            await self.__aexit__(None, None, None)
            raise DialectError("unreachable", "The run's hub could not be reached.") from error
        assert hello["type"] == "hello"
        self.hello = hello
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
        """Return the next message, or the bytes of the next frame; None when the run or its hub has ended. A hub stays for its viewers: one that only hands on does not keep it."""
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
    """What all gateways have: the hub, the clients, and what is said alike in every dialect.

    Parameters
    ----------
    entry : HubEntry
        The hub.
    port : int
        Port; 0 takes any free one.
    host : str
        Address or name under which clients find this machine.
    queue_bytes : int
        Bound of what waits for one client; beyond it the oldest updates are given up.
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
        """Serve until the hub ends. ``ready`` is told the port.

        Raises
        ------
        DialectError
            ``bad-parameter`` when the port is in use, ``unreachable`` when the hub is.
        """
        async with self._hub, await open_server(self._serve, self._port, self._host) as server:
            ready(next(iter(server.sockets)).getsockname()[1])
            await self._follow()

    @abc.abstractmethod
    async def _follow(self) -> None:
        """Pass on what the hub says, until it ends."""

    @abc.abstractmethod
    async def _take(self, client: GatewayClient, message: dict[str, Any]) -> None:
        """Take a message of a client that is no ping."""

    def _work(self, client: GatewayClient) -> list[Coroutine[Any, Any, None]]:
        """Return what is done for a client for as long as it is there, beside sending."""
        return []

    def _forget(self, client: GatewayClient) -> None:  # noqa: B027
        """Let go of a client that went."""

    def _traced(self, client: GatewayClient, flag: str) -> FlagInfo | None:
        """Return what the hub knows of a flag; None, once the client has been told, where it cannot be traced."""
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
    """Return the message that says what is wrong with a request, and where."""
    return error_text(f"{error.message} (at {error.field})" if error.field else error.message)
