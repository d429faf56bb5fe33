"""A gateway's connection to the hub whose run it serves: one viewer like any other."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from ...protocol import SUBPROTOCOL, decode_message, encode_message
from ...protocol.messages_generated import Hello, Join, Message, Peer
from ...protocol.version import own_version
from ..discovery import HubEntry
from .errors import DialectError

__all__ = ["HubViewer"]


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
