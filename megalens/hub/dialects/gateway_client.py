"""One client of a gateway, with its bounded queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

__all__ = ["GatewayClient", "error_text"]


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
