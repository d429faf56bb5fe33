"""A viewer that ``bench.soak`` kills: it attaches to the newest run again and again, by the hub itself or by the Jupyter server's relay."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from websockets.exceptions import InvalidHandshake, WebSocketException
from websockets.sync.client import connect as open_socket
from websockets.typing import Subprotocol

from megalens.pictures.report import write_report
from megalens.protocol import MegalensError, decode_frame
from megalens.runs import connect, open_run
from megalens.runs.live import LiveRun

from .recordings import joining

__all__ = ["watch"]

_AGAIN_SECONDS = 0.3


def watch(kind: str, **where: str) -> None:
    """Watch until killed, by the ``hub``, the ``relay`` or a ``folder``; print how many frames came or reports were drawn, now and then."""
    ways: dict[str, Callable[..., Iterator[int]]] = {"hub": _by_hub, "relay": _by_relay, "folder": _by_folder}
    frames = 0
    while True:
        try:
            for count in ways[kind](**where):
                frames += count
                print(frames, flush=True)
        except (MegalensError, OSError, WebSocketException, InvalidHandshake, IndexError):
            # No hub or no server at the moment.
            pass
        time.sleep(_AGAIN_SECONDS)


def _by_hub() -> Iterator[int]:
    run = connect()
    assert isinstance(run, LiveRun)
    try:
        before = 0
        while run.live:
            time.sleep(0.5)
            yield run.received_frames - before
            before = run.received_frames
    finally:
        run.close()


def _by_folder(runs: str, report: str) -> Iterator[int]:
    """Draw a report of the newest recording, as a kernel does while it grows."""
    newest = max(Path(runs).iterdir(), key=lambda each: each.stat().st_mtime)
    with open_run(newest) as run:
        write_report(run, report, [{"view": "trend", "flag": "MLP1_mat_mul", "layers": "0"}])
    yield 1


def _by_relay(address: str, token: str) -> Iterator[int]:
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(f"http://{address}/megalens/api/runs", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        live = [run["id"] for run in json.load(answer)["runs"] if run["state"] == "live"]
    with open_socket(
        f"ws://{address}/megalens/ws/runs/{live[0]}",
        additional_headers=headers,
        subprotocols=[Subprotocol("megalens.v2")],
        max_size=None,
    ) as socket:
        socket.send(joining("viewer"))
        for data in socket:
            if isinstance(data, bytes):
                decode_frame(data).table()
                yield 1
