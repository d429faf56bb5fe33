"""Frames through producer, hub and viewer, against a bare ``websockets`` echo of the same bytes.

Both sides have the same layout: this process sends and receives, one other process serves. Blocks of the two alternate in one run.
Run ``python -m bench.wire`` (``--quick`` for a short run that proves only that it works).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from bench.common import Row, asked, percentile, ratio, report
from megalens.hub.discovery import find_hub
from megalens.protocol import STREAMS, compressor_infos, encode_frame, encode_message, stream_schema

_TARGET = 0.8
_MAX_BYTES = 64 * 1024 * 1024
# Frames that are under way at most: as many as a tracer keeps queued.
_WINDOW = 16


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/wire.json``; return the page of all results."""
    options = asked(__doc__, arguments, "few blocks")
    rows = asyncio.run(_measure(quick=options.quick))
    how = (
        "One process sends and receives, another serves: the hub with one producer and one viewer, or a bare websockets echo. Blocks of the same frames "
        f"alternate in one run; at most {_WINDOW} frames are under way. The ratio is hub over echo in frames per second, over pairs of blocks. "
        "Both sides run in one asyncio loop each, without compression. The frames have one layout, as those of a training have: the hub checks the "
        "first in full and compares the others with it."
    )
    return report(
        "wire", "Wire: producer → hub → viewer against a bare echo", rows, how=how, quick=options.quick
    )


async def _measure(*, quick: bool) -> list[Row]:
    cases = [
        ("12 tensors × 96 values", _frame(12, 96), 1500, True),
        ("12 tensors × 96 × 128 values", _frame(12, 96 * 128), 150, True),
        ("12 tensors × 49,152 values", _frame(12, 49152), 40, True),
    ]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEGALENS_RUNTIME_DIR"] = os.path.join(folder, "runtime")
        for title, frame, count, judged in cases:
            blocks = 3 if quick else 12
            count = max(count // 10, 10) if quick else count
            hub_rates, echo_rates = await _pairs(frame, count, blocks)
            quotient = ratio(hub_rates, echo_rates)
            mean = sum(hub_rates) / len(hub_rates)
            low, high = percentile(hub_rates, 2.5), percentile(hub_rates, 97.5)
            size = len(frame)
            what = f"{title} ({size / 1e3:,.1f} kB)"
            rows += [
                Row(
                    f"{what}: hub over echo",
                    quotient.value,
                    "",
                    quotient.low,
                    quotient.high,
                    f"≥ {_TARGET}",
                    quotient.value >= _TARGET if judged else None,
                    extra={"hub_frames_per_second": hub_rates, "echo_frames_per_second": echo_rates},
                ),
                Row(f"{what}: frames through the hub", mean, "frames/s", low, high),
                Row(
                    f"{what}: bytes through the hub",
                    mean * size / 1e6,
                    "MB/s",
                    low * size / 1e6,
                    high * size / 1e6,
                ),
            ]
    return rows


async def _pairs(frame: bytes, count: int, blocks: int) -> tuple[list[float], list[float]]:
    """Return the frames per second of each block of both kinds, hub and echo."""
    hub = _Child("-m", "megalens", "hub", "--backlog-bytes", str(8 * 1024 * 1024))
    echo = _Child("-m", "bench.wire", "--echo-server")
    try:
        entry = find_hub(hub.ready["id"])
        assert entry is not None
        echo_address = f"ws://127.0.0.1:{echo.ready['port']}"
        async with (
            _connect(entry.address, entry.token) as producer,
            _connect(entry.address, entry.token) as viewer,
            _connect(echo_address) as plain,
        ):
            await _join(producer, "producer")
            await producer.send(encode_message(_announcement()))
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
            process.end()


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
    values = np.random.default_rng(0).standard_normal((tensors, size)).astype(np.float32)
    rows = [
        {
            "step": 1,
            "micro_batch": 0,
            "phase": "train",
            "pass": "forward",
            "rank": 0,
            "layer": 1 + number // 3,
            "flag": ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")[number % 3],
            "part": "",
            "compressor": "Tile(tiles=96, reduction='mean')",
            "source_shape": [1, 128, 384],
            "shape": [1, max(size // 96, 1), 96],
            "values": values[number],
            "labels": [],
            "nan_count": 0,
            "inf_count": 0,
            **STREAMS["tensors"].absent,
        }
        for number in range(tensors)
    ]
    return encode_frame("tensors", pa.Table.from_pylist(rows, stream_schema("tensors")), step=1)


def _announcement() -> dict[str, Any]:
    return {
        "type": "announce",
        "rank": 0,
        "model": {"name": "bench", "layers": 4},
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": [],
        "compressors": compressor_infos(),
        "config": {"flags": {}},
        "versions": {},
    }


def _connect(address: str, token: str | None = None) -> connect:
    headers = {"Authorization": f"Bearer {token}"} if token else None
    protocols: Any = ["megalens.v2"] if token else None
    return connect(
        address, subprotocols=protocols, additional_headers=headers, compression=None, max_size=_MAX_BYTES
    )


async def _join(client: ClientConnection, role: str) -> None:
    peer = {"name": "bench", "version": "0"}
    await client.send(encode_message({"type": "join", "protocol": "megalens.v2", "role": role, "peer": peer}))
    await client.recv()


async def _echo_server() -> None:
    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with serve(echo, "127.0.0.1", 0, compression=None, max_size=_MAX_BYTES) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(json.dumps({"port": port}), flush=True)
        await server.serve_forever()


class _Child:
    """A child process that prints one JSON line when it is ready."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.ready: dict[str, Any] = json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        if self._process.stdout:
            self._process.stdout.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--echo-server"]:
        asyncio.run(_echo_server())
    else:
        main()
