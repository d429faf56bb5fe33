"""The clients of the hub's load: many producers in one process, many viewers in another. Started by ``bench.hub_load``.

A WebSocket client so small that a thousand of them fit beside what is measured: it reads heads, not bodies.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from megalens.protocol import encode_frame

from .children import heard, said
from .recordings import FLAGS, announcement, flag_info, joining, tensor_rows

__all__ = ["ROWS", "RawClient", "open_client", "producers", "viewers"]


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


ROWS = 3
"""Rows of one producer's frame."""
_VALUES = 96
_STEP = struct.Struct("<q")
_MARK = 0x5A17_1234_5678_9ABC
_JOINING = 32


def producers(hub: dict[str, Any], count: int) -> None:
    """Be the producers; talk with the parent by lines of JSON."""
    asyncio.run(_producers(hub, count))


def viewers(hub: dict[str, Any], count: int, stalled: int) -> None:
    """Be the viewers."""
    asyncio.run(_viewers(hub, count, stalled))


async def _producers(hub: dict[str, Any], count: int) -> None:
    places = [
        {"rank": rank, "tp": 0, "pp": rank, "dp": 0, "host": f"node-{rank // 8}"} for rank in range(count)
    ]
    frames = [_template(rank) for rank in range(count)]
    began = time.monotonic()
    gate = asyncio.Semaphore(_JOINING)

    async def join(rank: int) -> RawClient:
        async with gate:
            client = await _join(hub, "producer", _show_error)
            client.send_text(json.dumps(_announced(rank, count, places)))
            return client

    clients = await asyncio.gather(*(join(rank) for rank in range(count)))
    said({"seconds": time.monotonic() - began})
    plan = await asyncio.to_thread(heard)
    sent: list[list[float]] = []
    reports = asyncio.create_task(_report(clients, sent))
    for step in range(1, plan["steps"] + 1):
        await asyncio.sleep(max(0.0, plan["start"] + step * plan["period"] - time.monotonic()))
        mark, begins = _STEP.pack(step), time.monotonic()
        for client, frame in zip(clients, frames, strict=True):
            client.send_frame(frame.replace(_STEP.pack(_MARK), mark))
        # What the sockets did not take at once is written now.
        await asyncio.sleep(0)
        sent.append([begins, time.monotonic()])
    gone = sum(client.ended.done() for client in clients)
    if gone:
        print(f"{gone} producers lost their connection", file=sys.stderr)
    said({"sent": sent})
    await asyncio.to_thread(heard)
    reports.cancel()
    for client in clients:
        client.send_text('{"type":"goodbye","reason":"finished"}')
    await asyncio.wait([client.ended for client in clients], timeout=60)


async def _report(clients: list[RawClient], sent: list[list[float]]) -> None:
    """Send every producer's ``status`` once a second, spread over it; rank 0's tells of all the others."""
    started = time.monotonic()
    rng = random.Random(0)
    order = rng.sample(range(len(clients)), len(clients))
    second = 0
    while True:
        for number, rank in enumerate(order):
            due = started + second + number / len(order)
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            status: dict[str, Any] = {
                "type": "status",
                "state": "training",
                "step": len(sent),
                "probes": {"fired": ROWS, "expected": ROWS, "missing": []},
                "overhead": {"percent": 0.3, "low": 0.2, "high": 0.4},
                "dropped": {"producer": 0, "viewer": 0, "recorder": 0},
            }
            if rank == 0:
                status["ranks"] = [
                    {"rank": other, "state": "training", "step": len(sent), "seconds": 0.2}
                    for other in range(len(clients))
                ]
            clients[rank].send_text(json.dumps(status))
        second += 1


def _show_error(text: bool, body: memoryview) -> None:
    """Show what the hub refuses: a producer that it turned away would be missing in every figure."""
    if b'"error"' in bytes(body[:200]):
        print(bytes(body).decode(), file=sys.stderr)


class _Viewer:
    """What one viewer was sent."""

    def __init__(self, producers: int) -> None:
        self.producers = producers
        self.frames = 0
        self.rows = 0
        self.backwards = 0
        self.completed: dict[int, float] = {}
        self.status: dict[str, Any] = {}
        self._seq = -1
        self._came: dict[int, int] = {}

    def take(self, text: bool, body: memoryview) -> None:
        if text:
            # Statuses of a thousand processes are a hundred kB: only the last one is looked into, at the end.
            if b'"type":"status"' in bytes(body[:200]):
                self.status = {"text": bytes(body)}
            return
        seq, step = struct.unpack_from("<Qq", body, 8)
        self.backwards += seq <= self._seq
        self._seq = seq
        if bytes(body[40:47]) != b"tensors":
            return
        self.frames += 1
        self.rows += struct.unpack_from("<I", body, 32)[0]
        came = self._came.get(step, 0) + 1
        self._came[step] = came
        if came == self.producers:
            self.completed[step] = time.monotonic()
            del self._came[step]

    def told(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.status["text"])
        return message


async def _viewers(hub: dict[str, Any], count: int, stalled: int) -> None:
    viewers = [_Viewer(hub["producers"]) for _ in range(count)]
    clients = [await _join(hub, "viewer", viewer.take) for viewer in viewers]
    said({})
    plan = await asyncio.to_thread(heard)
    slow = range(stalled)
    await asyncio.sleep(
        max(0.0, plan["start"] + (plan["stall_from"] + 0.9) * plan["period"] - time.monotonic())
    )
    for number in slow:
        clients[number].pause()
    await asyncio.to_thread(heard)
    for number in slow:
        clients[number].resume()
    # The last status of each says that the run is over and the recording closed.
    while not all(
        viewer.status and viewer.told()["state"] == "finished" and viewer.told()["recording"]["state"] != "on"
        for viewer in viewers
    ):
        await asyncio.sleep(0.2)
    said(
        {
            "viewers": [
                {
                    "stalled": number in slow,
                    "frames": viewer.frames,
                    "rows": viewer.rows,
                    "backwards": viewer.backwards,
                    "dropped": viewer.told()["dropped"]["viewer"],
                    "completed": viewer.completed,
                }
                for number, viewer in enumerate(viewers)
            ],
            "recording": viewers[-1].told()["recording"],
        }
    )
    for client in clients:
        client.close()


async def _join(hub: dict[str, Any], role: str, take: Any) -> RawClient:
    client = await open_client(hub["host"], hub["port"], hub["token"], take)
    client.send_text(joining(role))
    return client


def _announced(rank: int, size: int, places: list[dict[str, Any]]) -> dict[str, Any]:
    axes = {"parts": [""], "axes": ["position", "feature"]}
    names = (*FLAGS, "HiddenStates", "Attention", "RawAttention")
    layout: dict[str, Any] = {"world_size": size, "tp": 1, "pp": size, "dp": 1}
    more = {"leader": 0} if rank else {}
    if rank == 0:
        layout["ranks"] = places
    return announcement(rank, size, layout, [flag_info(name, [rank + 1], **axes) for name in names]) | more


def _template(rank: int) -> bytes:
    """Return the frame of one rank with a mark where its steps go."""
    rows = tensor_rows(
        ROWS, [1, 1, _VALUES], [1, 1, 12288], step=_MARK, rank=rank, layer=rank + 1, flag=list(FLAGS)
    )
    return encode_frame("tensors", pa.Table.from_batches([rows]), step=_MARK)
