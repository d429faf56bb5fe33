"""A hub of ours, in this process, for rows that no tracer of ours sends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from types import TracebackType

import pyarrow as pa
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ...protocol import ProtocolError, Stream, decode_message, encode_frame, encode_message
from ...protocol.messages_generated import ConfigPatch, Message
from ..connections import join_hub
from ..discovery import HubEntry
from ..options import HubOptions
from ..server import Hub

_WAIT_SECONDS = 2.0

Configure = Callable[[str, ConfigPatch], Awaitable[None]]
"""Takes the id and the patch of a ``configure``; answers it by :meth:`ProducerLink.say`, or raises
``ProtocolError``.
"""


class ProducerLink:
    """Speaks our protocol to a hub as its producer of rank 0, for a translation or a replay.

    Sending waits for the socket, which is the back-pressure. ``configure`` handles a viewer's change.
    """

    def __init__(self, entry: HubEntry, name: str, configure: Configure) -> None:
        self._entry = entry
        self._name = name
        self._configure = configure
        self._connection: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._seq = 0

    async def open(self) -> None:
        self._connection, _ = await join_hub(
            self._entry, "producer", self._name, max_size=64 << 20, close_timeout=5
        )
        self._reader = asyncio.create_task(self._read(self._connection))

    async def say(self, message: Message) -> None:
        """Send a control message; nothing when the hub is gone."""
        await self._send(encode_message(message))

    async def send(self, stream: str | Stream, table: pa.Table, step: int) -> None:
        """Send the rows of one stream as one frame; nothing when the hub is gone."""
        self._seq += 1
        await self._send(encode_frame(stream, table, step=step, seq=self._seq))

    async def close(self) -> None:
        """Report that the run is over, and leave. Safe twice."""
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


class HostedRun:
    """A real hub with its one producer, as an async context manager that ends both."""

    def __init__(self, options: HubOptions, peer: str, configure: Configure) -> None:
        self.hub = Hub(options)
        self._peer = peer
        self._configure = configure
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._link: ProducerLink | None = None
        self._crowded = False

    async def __aenter__(self) -> HostedRun:
        """Open the hub's port and attach the producer; raises ``HubError``."""
        entry = await self.hub.start()
        self._serving = asyncio.create_task(self.hub.serve_until_done(self._stop))
        self._link = ProducerLink(entry, self._peer, self._configure)
        try:
            await self._link.open()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def entry(self) -> HubEntry:
        """The hub's entry, once it is open."""
        assert self.hub.entry is not None
        return self.hub.entry

    @property
    def watched(self) -> bool:
        """Whether a viewer is attached."""
        return bool(self.hub.viewers)

    async def wait_for_viewers(self) -> None:
        """Wait until every viewer has taken most of its queue, so that no row need be given up.

        A viewer that takes nothing is not waited for.
        """
        until = time.monotonic() + _WAIT_SECONDS
        bound = self.hub.options.viewer_queue_bytes // 4
        while any(viewer.queue.bytes > bound for viewer in self.hub.viewers.values()):
            if self._crowded or time.monotonic() > until:
                self._crowded = True
                return
            await asyncio.sleep(0.005)
        self._crowded = False

    async def say(self, message: Message) -> None:
        assert self._link is not None
        await self._link.say(message)

    async def send(self, stream: str | Stream, table: pa.Table, step: int) -> None:
        assert self._link is not None
        await self._link.send(stream, table, step)

    async def finish(self) -> None:
        """Report that the run is over. The hub closes its recording."""
        assert self._link is not None
        await self._link.close()

    async def linger(self) -> None:
        """Serve on, after :meth:`finish`, while somebody watches and for the options' time."""
        assert self._serving is not None
        await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """End producer and hub. Safe twice."""
        if self._link is not None:
            await self._link.close()
        self._stop.set()
        if self._serving is not None:
            await self._serving
