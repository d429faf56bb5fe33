"""A producer that is no training process: the connection of a translation or a replay to its hub."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pyarrow as pa
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from ...protocol import SUBPROTOCOL, ProtocolError, Stream, decode_message, encode_frame, encode_message
from ...protocol.messages_generated import ConfigPatch, Message, Peer
from ...protocol.version import own_version
from ..discovery import HubEntry

__all__ = ["Configure", "ProducerLink"]

Configure = Callable[[str, ConfigPatch], Awaitable[None]]
"""Takes the id and the patch of a ``configure``; answers it by :meth:`ProducerLink.say`, or raises ``ProtocolError``."""

_OPEN_SECONDS = 10


class ProducerLink:
    """Speaks ``megalens.v2`` to a hub as its producer of rank 0. Sending waits for the socket, which is the back-pressure.

    Parameters
    ----------
    entry : HubEntry
        The hub.
    name : str
        How the producer names itself.
    configure : callable
        What to do with a viewer's change.
    """

    def __init__(self, entry: HubEntry, name: str, configure: Configure) -> None:
        self._entry = entry
        self._peer: Peer = {"name": name, "version": own_version()}
        self._configure = configure
        self._connection: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._seq = 0

    async def open(self) -> None:
        """Connect and join."""
        self._connection = await connect(
            self._entry.address,
            additional_headers={"Authorization": f"Bearer {self._entry.token}"},
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            proxy=None,
            max_size=64 << 20,
            open_timeout=_OPEN_SECONDS,
            # The hub pings.
            ping_interval=None,
            close_timeout=5,
        )
        await self.say({"type": "join", "protocol": SUBPROTOCOL, "role": "producer", "peer": self._peer})
        decode_message(await asyncio.wait_for(self._connection.recv(), _OPEN_SECONDS), allowed=("hello",))
        self._reader = asyncio.create_task(self._read(self._connection))

    async def say(self, message: Message) -> None:
        """Send a control message; nothing when the hub is gone."""
        await self._send(encode_message(message))

    async def send(self, stream: str | Stream, table: pa.Table, step: int) -> None:
        """Send the rows of one stream as one frame; nothing when the hub is gone."""
        self._seq += 1
        await self._send(encode_frame(stream, table, step=step, seq=self._seq))

    async def close(self) -> None:
        """Say that the run is over, and leave. Safe twice."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(ConnectionClosed):
            await connection.send(encode_message({"type": "goodbye", "reason": "finished"}))
        # The hub closes once it has read everything up to the goodbye.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(connection.wait_closed(), 10)
        await connection.close()
        if self._reader is not None:
            await self._reader

    async def _send(self, data: str | bytes) -> None:
        if self._connection is not None:
            with contextlib.suppress(ConnectionClosed):
                await self._connection.send(data)

    async def _read(self, connection: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for data in connection:
                message = decode_message(data)
                if message["type"] != "configure":
                    continue
                try:
                    await self._configure(message["id"], message["patch"])
                except ProtocolError as error:
                    await self.say(error.to_message(message["id"]))
