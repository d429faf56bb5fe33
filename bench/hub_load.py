"""What one hub carries: frames against a bare ``websockets`` echo of the same bytes, and a thousand producers with fifty viewers, five of which stop reading.

Producers are one process, viewers another, by a WebSocket client so small that a thousand of them fit beside what is measured: it reads heads, not bodies.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import struct
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from megalens.protocol import encode_frame, encode_message
from megalens.runs import RunFolder

from .common import Measured, Row, benchmark, divided, judged, percentile, ratio
from .live import Child, Memory, busy_seconds, call, heard, hub_process, resident_bytes, said
from .recordings import FLAGS, announcement, flag_info, joining, tensor_rows

__all__ = ["echo_server", "hub_load", "measure", "producers", "viewers", "wire"]

_TARGET = 0.8
_MAX_BYTES = 64 * 1024 * 1024
# Frames that are under way at most: as many as a tracer keeps queued.
_WINDOW = 16
_MIB = 1024 * 1024
_BACKLOG, _QUEUE = 64 * _MIB, 32 * _MIB


@benchmark(
    "Hub: a thousand producers, fifty viewers, five of them stalled",
    "a hundred producers and few steps",
    producers=(1000, 100, "producers"),
    viewers=(50, "viewers"),
    stalled=(5, "viewers that stop reading"),
    steps=(60, 8, "steps"),
    period=(2.0, "seconds a step"),
)
def hub_load(options: argparse.Namespace) -> Measured:
    """A thousand producers and fifty viewers at one hub, five of which stop reading."""
    how = (
        f"One hub that records, {options.producers} producers in a second process and {options.viewers} viewers in a third, on loopback. Each producer is a "
        f"pipeline stage: every {options.period:g} s all send a frame of {ROWS} rows of 96 values at once, and a status each second; rank 0 leads and tells "
        f"of all others. {options.steps} steps; from the middle on {options.stalled} viewers read nothing until the last step was sent. A step is late at a "
        "viewer by the time from its first frame's sending to its last frame's arrival. Intervals: 95 % bootstrap over steps."
    )
    return Measured(_rows(options, measure(options, options.folder / "runs")), how)


def measure(options: argparse.Namespace, record: Path) -> dict[str, Any]:
    """Run hub, producers and viewers, and return what each of them saw."""
    with ExitStack() as stack:
        hub, entry = stack.enter_context(hub_process("--record", str(record), "--linger", "60"))
        memory = {"empty": 0, "joined": 0}
        here = {"host": entry.host, "port": entry.port, "token": entry.token, "producers": options.producers}
        most = stack.enter_context(Memory(hub.pid, 0.5))
        of = {"hub": here, "count": options.viewers, "stalled": options.stalled}
        viewers = stack.enter_context(Child(call("hub_load:viewers", **of)))
        viewers.read()
        memory["empty"] = resident_bytes(hub.pid)
        producers = stack.enter_context(Child(call("hub_load:producers", hub=here, count=options.producers)))
        joined = producers.read()["seconds"]
        memory["joined"] = resident_bytes(hub.pid)
        began, before = time.monotonic(), busy_seconds(hub.pid)
        half = options.steps // 2
        plan = {
            "start": began + 2 - options.period,
            "period": options.period,
            "steps": options.steps,
            "stall_from": half,
        }
        for child in (viewers, producers):
            child.write(plan)
        sent = producers.read()["sent"]
        seconds = busy_seconds(hub.pid) - before
        busy = 100 * seconds / (time.monotonic() - began)
        time.sleep(options.period)
        for child in (producers, viewers):
            child.write({})
        seen = viewers.read()
        memory["most"] = max(most.most, memory["joined"])
        hub.end(0)
        recorded = RunFolder(entry.record).read("tensors", columns=["step"]).num_rows
        told = {"sent": sent, "joined": joined, "half": half, "recorded": recorded}
        return {"viewers": seen, **told, "memory": memory, "busy": busy, "seconds": seconds}


def _rows(options: argparse.Namespace, measured: dict[str, Any]) -> list[Row]:
    sent, half = measured["sent"], measured["half"]
    healthy = [viewer for viewer in measured["viewers"] if not viewer["stalled"]]
    stalled = [viewer for viewer in measured["viewers"] if viewer["stalled"]]
    steps = range(1, options.steps + 1)
    # What never came was late until the end.
    end = sent[-1][1] + options.period
    late = {
        step: [viewer["completed"].get(str(step), end) - sent[step - 1][0] for viewer in healthy]
        for step in steps
    }
    behind = [_behind(viewer, sent) for viewer in healthy]
    total = options.producers * options.steps * ROWS
    before, after = ([max(late[step]) for step in part] for part in (steps[:half], steps[half:]))
    stall = ratio(after, before, paired=False)
    memory = measured["memory"]
    allowed = memory["joined"] + _BACKLOG + options.stalled * _QUEUE
    unsaid = [abs(viewer["rows"] + viewer["dropped"] - total) for viewer in measured["viewers"]]
    unrecorded = abs(measured["recorded"] - total)
    sent_to, lacking = sum(v["rows"] for v in stalled), sum(v["dropped"] for v in healthy)
    backwards = sum(viewer["backwards"] for viewer in measured["viewers"])
    frames = options.producers / options.period
    return [
        judged("healthy viewers: most steps behind what was sent", max(behind), "steps", "≤ 1"),
        _percentile_row("healthy viewers: a step late, median", late, 50),
        _percentile_row("healthy viewers: a step late, 99 of 100", late, 99),
        divided("the slowest healthy viewer of a step, with stalled viewers over without", stall, unit=""),
        judged(
            "rows that neither arrived at a viewer nor were counted as given up",
            max(unsaid),
            "rows",
            "0",
            f"stalled viewers were sent {sent_to} of {total * len(stalled)} rows; healthy ones lack {lacking}",
        ),
        judged("rows that the recording lacks", unrecorded, "rows", "0", f"of {total}"),
        judged("frames out of order at a viewer", backwards, "frames", "0"),
        judged(
            "memory of the hub at most",
            memory["most"] / _MIB,
            "MiB",
            f"≤ {allowed / _MIB:.0f}",
            f"{memory['empty'] / _MIB:.0f} without producers, {memory['joined'] / _MIB:.0f} with all of them; the bound adds the backlog and the stalled viewers' queues",
        ),
        Row("until all producers had joined", measured["joined"], "s"),
        Row("processor time of the hub while it ran", measured["busy"], "% of one core"),
        Row(
            "frames a second into the hub, out of it",
            frames,
            "frames/s",
            note=f"{frames * options.viewers:.0f} frames/s out",
        ),
    ]


def _behind(viewer: dict[str, Any], sent: list[list[float]]) -> int:
    """Return the most steps that were sent in full while the viewer lacked part of them, the one just sent included."""
    most, newest = 0, 0
    for number, (_, ended) in enumerate(sent, 1):
        while viewer["completed"].get(str(newest + 1), float("inf")) <= ended:
            newest += 1
        most = max(most, number - newest)
    return most


def _percentile_row(what: str, late: dict[int, list[float]], percent: float) -> Row:
    def at(steps: list[int]) -> float:
        return 1e3 * percentile([value for step in steps for value in late[step]], percent)

    rng, steps = random.Random(0), list(late)
    drawn = [at(rng.choices(steps, k=len(steps))) for _ in range(200)]
    return Row(what, at(steps), "ms", percentile(drawn, 2.5), percentile(drawn, 97.5))


@benchmark(
    "Wire: producer → hub → viewer against a bare echo", "few blocks", blocks=(12, 3, "blocks of each way")
)
def wire(options: argparse.Namespace) -> Measured:
    """Frames through producer, hub and viewer, against a bare ``websockets`` echo of the same bytes."""
    how = (
        "One process sends and receives, another serves: the hub with one producer and one viewer, or a bare websockets echo. Blocks of the same frames "
        f"alternate in one run; at most {_WINDOW} frames are under way. The ratio is hub over echo in frames per second, over pairs of blocks. "
        "Both sides run in one asyncio loop each, without compression. The frames have one layout, as those of a training have: the hub checks the "
        "first in full and compares the others with it."
    )
    return Measured(asyncio.run(_measure(options.blocks, options.quick)), how)


async def _measure(blocks: int, quick: bool) -> list[Row]:
    rows: list[Row] = []
    for title, size, count in (("96", 96, 1500), ("96 × 128", 96 * 128, 150), ("49,152", 49152, 40)):
        frame = _frame(12, size)
        hub, echo = await _pairs(frame, max(count // 10, 10) if quick else count, blocks)
        mean, low, high = sum(hub) / len(hub), percentile(hub, 2.5), percentile(hub, 97.5)
        what = f"12 tensors × {title} values ({len(frame) / 1e3:,.1f} kB)"
        rates = {"hub_frames_per_second": hub, "echo_frames_per_second": echo}
        megabytes = [len(frame) * each / 1e6 for each in (mean, low, high)]
        rows += [
            divided(f"{what}: hub over echo", ratio(hub, echo), f"≥ {_TARGET}", unit="", **rates),
            Row(f"{what}: frames through the hub", mean, "frames/s", low, high),
            Row(f"{what}: bytes through the hub", megabytes[0], "MB/s", *megabytes[1:]),
        ]
    return rows


async def _pairs(frame: bytes, count: int, blocks: int) -> tuple[list[float], list[float]]:
    """Return the frames per second of each block of both kinds, hub and echo."""
    backlog = "--backlog-bytes", str(8 * _MIB)
    with hub_process(*backlog) as (_, entry), Child(call("hub_load:echo_server")) as echo:
        async with (
            _connect(entry.address, entry.token) as producer,
            _connect(entry.address, entry.token) as viewer,
            _connect(f"ws://127.0.0.1:{echo.read()}") as plain,
        ):
            await _join(producer, "producer")
            layout = {"world_size": 1, "tp": 1, "pp": 1, "dp": 1}
            await producer.send(encode_message(announcement(0, 4, layout, [])))
            await _join(viewer, "viewer")
            sides = (producer, viewer), (plain, plain)
            for side in sides:
                await _block(*side, frame, max(count // 4, 5))
            rates: tuple[list[float], list[float]] = ([], [])
            for number in range(blocks):
                for side in (0, 1) if number % 2 else (1, 0):
                    rates[side].append(await _block(*sides[side], frame, count))
            # The echo knows no end.
            echo.end(0)
            return rates


async def _block(source: ClientConnection, sink: ClientConnection, frame: bytes, count: int) -> float:
    """Send ``count`` frames and wait for the last to come back; return frames per second."""
    free = asyncio.Semaphore(_WINDOW)

    async def send() -> None:
        for _ in range(count):
            await free.acquire()
            await source.send(frame)

    started = time.perf_counter()
    sender = asyncio.create_task(send())
    came = 0
    while came < count:
        data = await sink.recv()
        # The hub's status messages come in between, and its audit.
        if isinstance(data, bytes) and len(data) == len(frame):
            came += 1
            free.release()
    await sender
    return count / (time.perf_counter() - started)


def _frame(tensors: int, size: int) -> bytes:
    rows = tensor_rows(
        tensors,
        [1, size // 96, 96],
        [1, 128, 384],
        step=1,
        layer=[1 + at // 3 for at in range(tensors)],
        flag=[FLAGS[at % 3] for at in range(tensors)],
    )
    return encode_frame("tensors", pa.Table.from_batches([rows]), step=1)


def _connect(address: str, token: str | None = None) -> connect:
    headers = {"Authorization": f"Bearer {token}"} if token else None
    protocols: Any = ["megalens.v2"] if token else None
    return connect(
        address, subprotocols=protocols, additional_headers=headers, compression=None, max_size=_MAX_BYTES
    )


async def _join(client: ClientConnection, role: str) -> None:
    await client.send(joining(role))
    await client.recv()


def echo_server() -> None:
    """Send back what comes."""

    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async def run() -> None:
        async with serve(echo, "127.0.0.1", 0, compression=None, max_size=_MAX_BYTES) as server:
            said(next(iter(server.sockets)).getsockname()[1])
            await server.serve_forever()

    asyncio.run(run())


_BINARY, _TEXT, _CLOSE, _PING, _PONG = 0x82, 0x81, 0x88, 0x89, 0x8A


class RawClient(asyncio.Protocol):
    """One connection to a hub. ``take`` is called with each whole message: whether it is text, and a view of its bytes that holds until the call returns."""

    def __init__(self, token: str, take: Callable[[bool, memoryview], None]) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._token = token
        self._take = take
        self._buffer = bytearray()
        self._upgraded = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        self.transport = transport
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
                    self.transport.close()
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

    def _write(self, kind: int, body: bytes) -> None:
        size = len(body)
        if size < 126:
            head = struct.pack("!BB", kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", kind, 0xFE, size)
        else:
            head = struct.pack("!BBQ", kind, 0xFF, size)
        # A mask of zeros is a mask, and costs nothing.
        self.transport.write(b"".join((head, bytes(4), body)))


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
            client = await _joined(hub, "producer", _show_error)
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
        self.rows = 0
        self.backwards = 0
        self.completed: dict[int, float] = {}
        self.status = b""
        self._seq = -1
        self._came: dict[int, int] = {}

    def take(self, text: bool, body: memoryview) -> None:
        if text:
            # Statuses of a thousand processes are a hundred kB: only the last one is looked into, at the end.
            if b'"type":"status"' in bytes(body[:200]):
                self.status = bytes(body)
            return
        seq, step = struct.unpack_from("<Qq", body, 8)
        self.backwards += seq <= self._seq
        self._seq = seq
        if bytes(body[40:47]) != b"tensors":
            return
        self.rows += struct.unpack_from("<I", body, 32)[0]
        came = self._came.get(step, 0) + 1
        self._came[step] = came
        if came == self.producers:
            self.completed[step] = time.monotonic()
            del self._came[step]

    def told(self) -> dict[str, Any]:
        return json.loads(self.status)


async def _viewers(hub: dict[str, Any], count: int, stalled: int) -> None:
    viewers = [_Viewer(hub["producers"]) for _ in range(count)]
    clients = [await _joined(hub, "viewer", viewer.take) for viewer in viewers]
    said({})
    plan = await asyncio.to_thread(heard)
    slow = range(stalled)
    await asyncio.sleep(
        max(0.0, plan["start"] + (plan["stall_from"] + 0.9) * plan["period"] - time.monotonic())
    )
    for number in slow:
        clients[number].transport.pause_reading()
    await asyncio.to_thread(heard)
    for number in slow:
        clients[number].transport.resume_reading()
    # The last status of each says that the run is over and the recording closed.
    while not all(
        viewer.status and viewer.told()["state"] == "finished" and viewer.told()["recording"]["state"] != "on"
        for viewer in viewers
    ):
        await asyncio.sleep(0.2)
    said(
        [
            {
                "stalled": number in slow,
                "rows": viewer.rows,
                "backwards": viewer.backwards,
                "dropped": viewer.told()["dropped"]["viewer"],
                "completed": viewer.completed,
            }
            for number, viewer in enumerate(viewers)
        ]
    )
    for client in clients:
        client.transport.close()


async def _joined(hub: dict[str, Any], role: str, take: Any) -> RawClient:
    """Return a client of a hub once the WebSocket is open; it says who it is."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: RawClient(hub["token"], take), hub["host"], hub["port"])
    await client.opened
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
