"""What tracing costs a tensor-parallel Megatron-Core training, what crosses between its processes, and how soon a change shows.

Run ``python -m bench.megatron`` (``--quick`` for a short run that proves only that it works). Needs ``megatron-core``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from bench.common import Row, asked, judged, percentile, ratio, report
from megalens.hub.discovery import find_hub
from megalens.protocol import decode_frame, decode_message, encode_message

ROOT = Path(__file__).resolve().parents[1]
_FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")
_RATIO, _EXTRA_SECONDS = 1.03, 0.15


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/megatron.json``; return the page of all results."""
    options = asked(
        __doc__,
        arguments,
        "few rounds",
        rounds=(int, "blocks of each way (60)"),
        steps=(4, "steps a block"),
        changes=(int, "changes of what is traced (40)"),
    )
    options.rounds = options.rounds or (4 if options.quick else 60)
    options.changes = options.changes or (4 if options.quick else 40)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEGALENS_RUNTIME_DIR"] = os.path.join(folder, "runtime")
        measured = _measure(options, Path(folder))
    how = (
        f"Megatron-Core GPT of 4 layers, hidden 192, tensor parallel over 2 processes with gloo on the CPU, 2 micro-batches of 4 × 128. {options.rounds} rounds; in "
        f"each, {options.steps} steps in every way, in random order. Traced: QKV, MLP1 and MLP2 of all layers, one sample, Tile(96), one viewer attached. Baseline: each hook "
        "gathers the same sample's tensor, uncompressed, before it returns, and rank 0 sends tiles as JSON. Without: the tracer is there and asked for nothing, its hub "
        f"stopped. Ratios over rounds, 95 % bootstrap interval. Then {options.changes} changes at random times: from configure being sent to the first frame that has it."
    )
    return report(
        "megatron", "Tracing a tensor-parallel training", _rows(measured), how=how, quick=options.quick
    )


def _measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    common = ["--store", folder / "store", "--rounds", options.rounds, "--steps", options.steps]
    common += ["--watched-steps", 8 * options.changes]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.megatron_rank", "--rank", str(rank), *map(str, common)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in (0, 1)
    ]
    hub = None
    try:
        begun = _read(ranks[0])
        hub = begun["hub"]
        viewer = _Viewer(begun["run"])
        _go_on(ranks[0])
        assert _read(ranks[0])["watch"]
        watching = threading.Event()
        watching.set()
        delays: list[float] = []
        changing = threading.Thread(
            target=viewer.change, args=(options.changes, watching, delays), daemon=True
        )
        changing.start()
        _read(ranks[0])
        watching.clear()
        changing.join(30)
        measured = {**_read(ranks[0]), "delays": delays}
        viewer.close()
        _go_on(ranks[0])
        for rank in ranks:
            rank.wait(60)
        return measured
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
        if hub is not None:
            # A rank that fell while the hub was stopped leaves it so.
            with suppress(ProcessLookupError):
                os.kill(hub, signal.SIGCONT)


def _rows(measured: dict[str, Any]) -> list[Row]:
    blocks, delays = measured["blocks"], measured["delays"]
    without = blocks["without"]
    traced = ratio(blocks["traced"], without, middle=statistics.median)
    peer = ratio(blocks["peer"], without, middle=statistics.median)
    both = ratio(blocks["traced"], blocks["peer"], middle=statistics.median)
    step = measured["watched"]
    extra = [delay - step for delay in delays]
    share = measured["bytes"] / measured["peer_bytes"]
    return [
        Row("step without tracing", statistics.median(without) * 1e3, "ms"),
        Row(
            "traced over without",
            traced.value,
            "",
            traced.low,
            traced.high,
            f"≤ {_RATIO}",
            None if traced.low <= _RATIO < traced.high else traced.high <= _RATIO,
            "**undecided**: the interval holds the target; measure longer, or on a quieter machine"
            if traced.low <= _RATIO < traced.high
            else "",
        ),
        Row("baseline over without", peer.value, "", peer.low, peer.high),
        judged("traced over baseline", both.value, "", "< 1", low=both.low, high=both.high, by=both.high),
        Row("bytes of tensors that cross in a step, traced", measured["bytes"] / 1e3, "kB"),
        Row("bytes of tensors that cross in a step, baseline", measured["peer_bytes"] / 1e3, "kB"),
        judged("bytes traced over baseline", share, "", "< 1"),
        judged(
            "from configure to the first frame, beyond one step, median",
            percentile(extra, 50) * 1e3,
            "ms",
            f"≤ {_EXTRA_SECONDS * 1e3:.0f}",
            f"a step took {step * 1e3:.0f} ms",
        ),
        judged(
            "from configure to the first frame, beyond one step, at most",
            max(extra) * 1e3,
            "ms",
            f"≤ {_EXTRA_SECONDS * 1e3:.0f}",
            seconds=delays,
        ),
    ]


class _Viewer:
    """A viewer that reads all the time and changes the compressor when asked."""

    def __init__(self, run: str) -> None:
        entry = find_hub(run)
        assert entry is not None
        self._context = ExitStack()
        self._socket: ClientConnection = self._context.enter_context(
            connect(
                entry.address,
                additional_headers={"Authorization": f"Bearer {entry.token}"},
                subprotocols=[Subprotocol("megalens.v2")],
                compression=None,
                max_size=None,
            )
        )
        peer = {"name": "bench", "version": "0"}
        self._socket.send(
            encode_message({"type": "join", "protocol": "megalens.v2", "role": "viewer", "peer": peer})
        )
        self._came = threading.Condition()
        self._newest = self._wanted = ""
        self._error: str | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def change(self, count: int, watching: threading.Event, delays: list[float]) -> None:
        """Change the number of tiles at random times, and note how long each change took to show."""
        rng = random.Random(1)
        for number in range(count):
            tiles = 48 if number % 2 == 0 else 96
            time.sleep(rng.uniform(0.3, 1.3))
            compressor = {"name": "Tile", "params": {"tiles": tiles, "reduction": "mean"}}
            patch = {"flags": {flag: {"compressor": compressor} for flag in _FLAGS}}
            began = time.perf_counter()
            self._socket.send(encode_message({"type": "configure", "id": f"c{number}", "patch": patch}))
            with self._came:
                self._wanted = f"tiles={tiles},"
                shown = self._came.wait_for(lambda: self._wanted in self._newest or self._error, 20)
            if self._error or not watching.is_set():
                return
            if not shown:
                raise TimeoutError("A change did not show within 20 s.")
            delays.append(time.perf_counter() - began)

    def close(self) -> None:
        self._context.close()

    def _read(self) -> None:
        for data in self._socket:
            if isinstance(data, str):
                message = decode_message(data)
                if message["type"] == "error":
                    with self._came:
                        self._error = message["message"]
                        self._came.notify_all()
                continue
            frame = decode_frame(data)
            if frame.stream == "tensors" and frame.rows:
                newest = frame.table().column("compressor")[0].as_py()
                with self._came:
                    self._newest = newest
                    self._came.notify_all()


def _read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"The training ended early, with exit code {process.wait(30)}.")
    message: dict[str, Any] = json.loads(line)
    return message


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


if __name__ == "__main__":
    main()
