"""What one hub carries: frames against a bare ``websockets`` echo of the same bytes, and a thousand producers with fifty viewers, five of which stop reading."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from megalens.hub.discovery import find_hub
from megalens.protocol import encode_frame, encode_message
from megalens.runs import RunFolder

from .children import Child, busy_seconds, call, resident_bytes, said
from .common import percentile, ratio
from .hub_load_clients import ROWS
from .recordings import FLAGS, announcement, joining, tensor_rows
from .report import Measured, Row, benchmark, divided, judged

__all__ = ["echo_server", "hub_load", "measure", "wire"]

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
    hub = Child([sys.executable, "-m", "megalens", "hub", "--record", str(record), "--linger", "60"])
    children = [hub]
    try:
        entry = find_hub(hub.read()["id"])
        assert entry is not None
        assert entry.record is not None
        here = {"host": entry.host, "port": entry.port, "token": entry.token, "producers": options.producers}
        watch = _Watch(hub.pid)
        viewers = Child(
            call("hub_load_clients:viewers", hub=here, count=options.viewers, stalled=options.stalled)
        )
        children.append(viewers)
        viewers.read()
        watch.mark("empty")
        producers = Child(call("hub_load_clients:producers", hub=here, count=options.producers))
        children.append(producers)
        joined = producers.read()["seconds"]
        watch.mark("joined")
        half = options.steps // 2
        plan = {
            "start": time.monotonic() + 2 - options.period,
            "period": options.period,
            "steps": options.steps,
            "stall_from": half,
        }
        for child in (viewers, producers):
            child.write(plan)
        sent = producers.read()["sent"]
        watch.mark("sent")
        time.sleep(options.period)
        watch.mark("settled")
        for child in (producers, viewers):
            child.write({})
        seen = viewers.read()
        hub.end(0)
        recorded = RunFolder(entry.record).read("tensors", columns=["step"]).num_rows
        return {
            **seen,
            "sent": sent,
            "joined": joined,
            "half": half,
            "recorded": recorded,
            "watch": watch.close(),
        }
    finally:
        for child in children:
            child.end(0)


def _rows(options: argparse.Namespace, measured: dict[str, Any]) -> list[Row]:
    sent, half, watch = measured["sent"], measured["half"], measured["watch"]
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
    memory = watch["memory"]
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
        Row("processor time of the hub while it ran", watch["busy"], "% of one core"),
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


class _Watch:
    """Memory and processor time of a process, looked at twice a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._memory: dict[str, int] = {"most": 0}
        self._busy: dict[str, tuple[float, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def mark(self, name: str) -> None:
        self._memory[name] = resident_bytes(self._pid)
        self._busy[name] = (time.monotonic(), busy_seconds(self._pid))

    def close(self) -> dict[str, Any]:
        self._ended.set()
        self._thread.join()
        (began, before), (ended, after) = self._busy["joined"], self._busy["sent"]
        seconds = after - before
        return {"memory": self._memory, "busy": 100 * seconds / (ended - began), "seconds": seconds}

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            try:
                self._memory["most"] = max(self._memory["most"], resident_bytes(self._pid))
            except OSError:
                return


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
    hub = Child([sys.executable, "-m", "megalens", "hub", "--backlog-bytes", str(8 * 1024 * 1024)])
    echo = Child(call("hub_load:echo_server"))
    try:
        entry = find_hub(hub.read()["id"])
        assert entry is not None
        echo_address = f"ws://127.0.0.1:{echo.read()}"
        async with (
            _connect(entry.address, entry.token) as producer,
            _connect(entry.address, entry.token) as viewer,
            _connect(echo_address) as plain,
        ):
            await _join(producer, "producer")
            layout = {"world_size": 1, "tp": 1, "pp": 1, "dp": 1}
            await producer.send(encode_message(announcement(0, 4, layout, [])))
            await _join(viewer, "viewer")
            sides: tuple[Callable[[int], Awaitable[float]], ...] = (
                lambda n: _block(producer, viewer, frame, n),
                lambda n: _block(plain, plain, frame, n),
            )
            for side in sides:
                await side(max(count // 4, 5))
            rates: tuple[list[float], list[float]] = ([], [])
            for number in range(blocks):
                for side in (0, 1) if number % 2 else (1, 0):
                    rates[side].append(await sides[side](count))
            return rates
    finally:
        for process in (hub, echo):
            process.end(0)


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
