"""A hub of ours, in this process, for rows that no tracer of ours sends."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

import pyarrow as pa

from ...protocol import Stream
from ...protocol.messages_generated import Message
from ..discovery import HubEntry
from ..options import HubOptions
from ..server import Hub
from .producer_link import Configure, ProducerLink

__all__ = ["HostedRun"]

_ROOM_SECONDS = 2.0


class HostedRun:
    """A real hub with its one producer, as an async context manager. Leaving it ends both, the recording closed.

    Parameters
    ----------
    options : HubOptions
        How the hub is started.
    peer : str
        How the producer names itself.
    configure : callable
        What to do with a viewer's change.
    """

    def __init__(self, options: HubOptions, peer: str, configure: Configure) -> None:
        self.hub = Hub(options)
        self._peer = peer
        self._configure = configure
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._link: ProducerLink | None = None
        self._crowded = False

    async def __aenter__(self) -> HostedRun:
        """Open the hub's port and attach the producer.

        Raises
        ------
        HubError
            When the port is in use or a folder cannot be written.
        """
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

    async def room(self) -> None:
        """Wait until every viewer has taken most of what it is owed: rows that can wait need not be given up. A viewer that takes nothing is not waited for."""
        until = time.monotonic() + _ROOM_SECONDS
        bound = self.hub.options.viewer_queue_bytes // 4
        while any(viewer.queue.bytes > bound for viewer in self.hub.viewers.values()):
            if self._crowded or time.monotonic() > until:
                self._crowded = True
                return
            await asyncio.sleep(0.005)
        self._crowded = False

    async def say(self, message: Message) -> None:
        """Send a control message to the hub."""
        assert self._link is not None
        await self._link.say(message)

    async def send(self, stream: str | Stream, table: pa.Table, step: int) -> None:
        """Send rows to the hub."""
        assert self._link is not None
        await self._link.send(stream, table, step)

    async def finish(self) -> None:
        """Say that the run is over. The hub closes its recording."""
        assert self._link is not None
        await self._link.close()

    async def linger(self) -> None:
        """Serve on, after :meth:`finish`, for as long as somebody watches and the time that the options give."""
        assert self._serving is not None
        await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """End producer and hub. Safe twice."""
        if self._link is not None:
            await self._link.close()
        self._stop.set()
        if self._serving is not None:
            await self._serving
