"""A WebSocket client so small that a thousand of them fit beside what is measured: it reads heads, not bodies."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections.abc import Callable

__all__ = ["RawClient", "open_client"]

_BINARY, _TEXT, _CLOSE, _PING, _PONG = 0x82, 0x81, 0x88, 0x89, 0x8A


class RawClient(asyncio.Protocol):
    """One connection to a hub.

    Parameters
    ----------
    token : str
        The hub's token.
    take : callable
        Called with each whole message: whether it is text, and a view of its bytes that holds until the call returns.
    """

    def __init__(self, token: str, take: Callable[[bool, memoryview], None]) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._token = token
        self._take = take
        self._buffer = bytearray()
        self._upgraded = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            f"GET / HTTP/1.1\r\nHost: hub\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: megalens.v2\r\nAuthorization: Bearer {self._token}\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        """Cut what came into messages."""
        self._buffer += data
        if not self._upgraded:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            if not self._buffer.startswith(b"HTTP/1.1 101"):
                self.opened.set_exception(ConnectionError(self._buffer[:end].decode("latin-1")))
                return
            del self._buffer[: end + 4]
            self._upgraded = True
            self.opened.set_result(None)
        at = 0
        with memoryview(self._buffer) as view:
            while (message := _head(view, at)) is not None:
                kind, begin, end = message
                if kind == _PING:
                    self._write(_PONG, bytes(view[begin:end]))
                elif kind == _CLOSE:
                    self._write(_CLOSE, bytes(view[begin:end]))
                    self.close()
                elif kind in (_TEXT, _BINARY):
                    with view[begin:end] as body:
                        self._take(kind == _TEXT, body)
                at = end
        del self._buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end."""
        if not self.opened.done():
            self.opened.set_exception(error or ConnectionError("the hub closed the connection"))
        if not self.ended.done():
            self.ended.set_result(None)

    def send_text(self, text: str) -> None:
        """Send a text message."""
        self._write(_TEXT, text.encode())

    def send_frame(self, frame: bytes) -> None:
        """Send a binary message."""
        self._write(_BINARY, frame)

    def pause(self) -> None:
        """Stop to read."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.close()

    def _write(self, kind: int, body: bytes) -> None:
        size = len(body)
        if size < 126:
            head = struct.pack("!BB", kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", kind, 0xFE, size)
        else:
            head = struct.pack("!BBQ", kind, 0xFF, size)
        if self._transport is not None:
            # A mask of zeros is a mask, and costs nothing.
            self._transport.write(b"".join((head, bytes(4), body)))


async def open_client(
    host: str, port: int, token: str, take: Callable[[bool, memoryview], None]
) -> RawClient:
    """Connect to a hub and return the client once the WebSocket is open."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: RawClient(token, take), host, port)
    await client.opened
    return client


def _head(view: memoryview, at: int) -> tuple[int, int, int] | None:
    """Return kind, begin and end of the message at ``at`` once all of it is there. The hub never sends parts of messages."""
    left = len(view) - at
    if left < 2:
        return None
    size, head = view[at + 1], 2
    if size == 126 and left >= 4:
        size, head = struct.unpack_from("!H", view, at + 2)[0], 4
    elif size == 127 and left >= 10:
        size, head = struct.unpack_from("!Q", view, at + 2)[0], 10
    elif size >= 126:
        return None
    return (view[at], at + head, at + head + size) if left >= head + size else None
