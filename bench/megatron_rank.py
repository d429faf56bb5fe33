"""One process of the tensor-parallel training that ``bench.megatron`` measures. Started by it; talks by lines of JSON."""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from websockets.sync.server import ServerConnection, serve

__all__ = ["FLAGS", "WAYS", "main"]

FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")
WAYS = ("without", "traced", "peer")
TILES = 96
_SETTLE_STEPS = 4
_TESTS = Path(__file__).resolve().parents[1] / "tests" / "kit"


def main() -> None:
    """Train in blocks of every way, then on while the parent changes what is traced."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--watched-steps", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = distributed.FileStore(options.store, 2)
    distributed.init_process_group(
        "gloo", store=store, rank=options.rank, world_size=2, timeout=timedelta(seconds=120)
    )
    job = _job()

    import megalens

    with megalens.trace(job.chunks, name="megatron bench", linger=0) as tracer:
        if options.rank == 0:
            if not tracer.connected(60):
                raise TimeoutError("The tracer did not reach its hub within 60 s.")
            _say({"run": tracer.run_id, "hub": tracer.hub_pid})
            sys.stdin.readline()
        distributed.barrier()
        measure = _Measure(options, job, tracer)
        blocks = measure.blocks()
        after = measure.watched()
        if options.rank == 0:
            _say({"blocks": blocks, **measure.bytes(), "watched": after})
            sys.stdin.readline()
        distributed.barrier()
    distributed.destroy_process_group()


def _job() -> Any:
    """Return the test's Megatron-Core GPT at a size where a step takes a while."""
    sys.path.insert(0, str(_TESTS))
    import shape

    shape.SEQUENCE, shape.SAMPLES, shape.MICRO_BATCHES, shape.VOCABULARY = 128, 4, 2, 256
    from megatron_job import MegatronJob

    return MegatronJob(shape.Shape(layers=4, hidden=192, heads=4, groups=4, tp=2))


class _Measure:
    def __init__(self, options: argparse.Namespace, job: Any, tracer: Any) -> None:
        self._options = options
        self._job = job
        self._tracer = tracer
        self._step = 0
        self._bytes: list[float] = []
        self._peer_bytes: list[float] = []

    def blocks(self) -> dict[str, list[float]]:
        """Return the seconds a step of each way in each round, ways in random order."""
        rng = random.Random(0)
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        self._train(4, lambda: nullcontext())
        for _ in range(self._options.rounds):
            for way in rng.sample(WAYS, len(WAYS)):
                seconds[way].append(self._block(way))
        return seconds

    def watched(self) -> float:
        """Train on with everything traced and return the seconds a step."""
        self._configure(TILES)
        self._train(_SETTLE_STEPS, self._tracer.step)
        if self._options.rank == 0:
            _say({"watch": True})
        seconds = self._train(self._options.watched_steps, self._tracer.step)
        if self._options.rank == 0:
            _say({"watch": False})
        return seconds

    def bytes(self) -> dict[str, float]:
        """Return the bytes of tensors that crossed between the processes in one step, both ways."""
        return {"bytes": statistics.fmean(self._bytes), "peer_bytes": statistics.fmean(self._peer_bytes)}

    def _received(self) -> int:
        # Nobody but this benchmark wants to know.
        return int(self._tracer.tensors.piece_bytes) if self._options.rank == 0 else 0

    def _block(self, way: str) -> float:
        count = self._options.steps
        if way == "without":
            self._hub(signal.SIGSTOP)
            seconds = self._train(count, lambda: nullcontext())
            self._hub(signal.SIGCONT)
            return seconds
        if way == "traced":
            self._configure(TILES)
            self._train(_SETTLE_STEPS, self._tracer.step)
            before = self._received()
            seconds = self._train(count, self._tracer.step)
            self._bytes.append((self._received() - before) / count)
            self._configure(None)
            self._train(_SETTLE_STEPS, self._tracer.step)
            return seconds
        self._hub(signal.SIGSTOP)
        peer = Peer(self._job.chunks, self._options.rank)
        self._train(1, lambda: nullcontext())
        peer.bytes = 0
        seconds = self._train(count, lambda: nullcontext())
        self._peer_bytes.append(peer.bytes / count)
        peer.close()
        self._hub(signal.SIGCONT)
        return seconds

    def _train(self, count: int, around: Callable[[], AbstractContextManager[Any]]) -> float:
        distributed.barrier()
        began = time.perf_counter()
        for _ in range(count):
            self._step += 1
            with around():
                self._job.train(self._step)
        distributed.barrier()
        return (time.perf_counter() - began) / count

    def _configure(self, tiles: int | None) -> None:
        if self._options.rank == 0:
            import megalens

            self._tracer.configure({flag: tiles and megalens.Tile(tiles) for flag in FLAGS})
        distributed.barrier()

    def _hub(self, number: signal.Signals) -> None:
        if self._options.rank == 0 and self._tracer.hub_pid:
            os.kill(self._tracer.hub_pid, number)


class Peer:
    """Traces the way that exists elsewhere, written small: every hook gathers the whole tensor at once, and rank 0 sends the tiles as JSON.

    Parameters
    ----------
    chunks : list of torch.nn.Module
        The model.
    rank : int
        Of the two.
    """

    def __init__(self, chunks: list[nn.Module], rank: int) -> None:
        self.bytes = 0
        self._rank = rank
        self._queue: queue.Queue[tuple[str, Tensor] | None] = queue.Queue()
        self._handles = [
            module.register_forward_hook(self._hook(name))
            for chunk in chunks
            for name, module in chunk.named_modules()
            if name.endswith(("linear_qkv", "linear_fc1", "linear_fc2"))
        ]
        self._viewer: ServerConnection | None = None
        if rank == 0:
            self._open()

    def close(self) -> None:
        """Take the hooks off, throw away what waits, and stop."""
        for handle in self._handles:
            handle.remove()
        if self._rank == 0:
            while not self._queue.empty():
                self._queue.get_nowait()
            self._queue.put(None)
            self._sender.join(30)
            self._server.shutdown()

    def _open(self) -> None:
        from websockets.sync.client import connect

        came = threading.Event()

        def accept(viewer: ServerConnection) -> None:
            self._viewer = viewer
            came.set()
            for _ in viewer:
                pass

        self._server = serve(accept, "127.0.0.1", 0, max_size=None, ping_interval=None)
        port = self._server.socket.getsockname()[1]

        def watch() -> None:
            with connect(f"ws://127.0.0.1:{port}", max_size=None, ping_interval=None) as socket:
                for _ in socket:
                    pass

        for work in (self._server.serve_forever, watch):
            threading.Thread(target=work, daemon=True).start()
        if not came.wait(20):
            raise TimeoutError("The baseline's viewer did not connect within 20 s.")
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def _hook(self, name: str) -> Any:
        def gather(module: nn.Module, inputs: tuple[Any, ...], output: tuple[Tensor, Any]) -> None:
            # [S, B, H/TP]; the second linear layer's is whole on both ranks, and gathered all the same where this is done.
            piece = output[0].detach()[:, :1].contiguous()
            pieces = [torch.empty_like(piece) for _ in range(2)] if self._rank == 0 else None
            distributed.gather(piece, pieces)
            self.bytes += piece.numel() * piece.element_size()
            if pieces is not None:
                self._queue.put((name, torch.cat(pieces, -1)))

        return gather

    def _send(self) -> None:
        while (item := self._queue.get()) is not None:
            name, tensor = item
            whole = tensor.transpose(0, 1)
            width = -(-whole.shape[-1] // TILES)
            tiles = functional.pad(whole, (0, -whole.shape[-1] % width)).unflatten(-1, (-1, width)).mean(-1)
            message = {
                "type": "update",
                "layer": name,
                "args": list(tiles.shape),
                "result": tiles.flatten().tolist(),
            }
            if self._viewer is not None:
                self._viewer.send(json.dumps(message))


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
