"""A tensor-parallel Megatron-Core training: what tracing costs, what crosses between its processes, and how soon a change shows. Needs ``megatron-core``."""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, distributed, nn

import megalens
from megalens.runs import Run, connect

from .common import ROOT, Measured, Row, benchmark, divided, in_turns, judged, percentile, ratio, timed
from .live import Child, call, heard, joined, said, traced
from .recordings import FLAGS
from .tracer import TILES, Sender, tiled, update

__all__ = ["megatron", "rank"]

_RATIO, _EXTRA_SECONDS = 1.03, 0.15
_SETTLE_STEPS = 4


@benchmark(
    "Tracing a tensor-parallel training",
    "few rounds",
    rounds=(60, 4, "blocks of each way"),
    steps=(4, "steps a block"),
    changes=(40, 4, "changes of what is traced"),
)
def megatron(options: argparse.Namespace) -> Measured:
    """What tracing costs a tensor-parallel Megatron-Core training, what crosses between its processes, and how soon a change shows."""
    given = {"store": options.folder / "store", "rounds": options.rounds, "steps": options.steps}
    given["watched_steps"] = 8 * options.changes
    ranks = [Child(call("megatron:rank", rank=at, **given)) for at in (0, 1)]
    hub, patience = None, 0.0
    watching, delays = threading.Event(), list[float]()
    try:
        begun = ranks[0].read()
        hub = begun["hub"]
        with connect(begun["run"]) as run:
            ranks[0].write()
            assert ranks[0].read()["watch"]
            watching.set()
            changing = threading.Thread(
                target=_change, args=(run, options.changes, watching, delays), daemon=True
            )
            changing.start()
            ranks[0].read()
            watching.clear()
            changing.join(30)
            measured = {**ranks[0].read(), "delays": delays}
        ranks[0].write()
        patience = 60.0
    finally:
        for each in ranks:
            each.end(patience)
        if hub is not None:
            # A rank that fell while the hub was stopped leaves it so.
            with suppress(ProcessLookupError):
                os.kill(hub, signal.SIGCONT)
    how = (
        f"Megatron-Core GPT of 4 layers, hidden 192, tensor parallel over 2 processes with gloo on the CPU, 2 micro-batches of 4 × 128. {options.rounds} rounds; in "
        f"each, {options.steps} steps in every way, in random order. Traced: QKV, MLP1 and MLP2 of all layers, one sample, Tile(96), one viewer attached. Baseline: each hook "
        "gathers the same sample's tensor, uncompressed, before it returns, and rank 0 sends tiles as JSON. Without: the tracer is there and asked for nothing, its hub "
        f"stopped. Ratios over rounds, 95 % bootstrap interval. Then {options.changes} changes at random times: from configure being sent to the first frame that has it."
    )
    return Measured(_rows(measured), how)


def _rows(measured: dict[str, Any]) -> list[Row]:
    blocks, delays = measured["blocks"], measured["delays"]
    without, step = blocks["without"], measured["watched"]

    def over(above: str, below: str) -> Any:
        return ratio(blocks[above], blocks[below], middle=statistics.median)

    extra = [delay - step for delay in delays]
    most, late = f"≤ {_EXTRA_SECONDS * 1e3:.0f}", "from configure to the first frame, beyond one step"
    crossing, share = "bytes of tensors that cross in a step", measured["bytes"] / measured["peer_bytes"]
    note = f"a step took {step * 1e3:.0f} ms"
    return [
        Row("step without tracing", statistics.median(without) * 1e3, "ms"),
        divided("traced over without", over("traced", "without"), f"≤ {_RATIO}", unit="", by="both"),
        divided("baseline over without", over("peer", "without"), unit=""),
        divided("traced over baseline", over("traced", "peer"), "< 1", unit="", by="high"),
        Row(f"{crossing}, traced", measured["bytes"] / 1e3, "kB"),
        Row(f"{crossing}, baseline", measured["peer_bytes"] / 1e3, "kB"),
        judged("bytes traced over baseline", share, "", "< 1"),
        judged(f"{late}, median", percentile(extra, 50) * 1e3, "ms", most, note),
        judged(f"{late}, at most", max(extra) * 1e3, "ms", most, seconds=delays),
    ]


def _change(run: Run, count: int, watching: threading.Event, delays: list[float]) -> None:
    """Change the number of tiles at random times, and note how long each change took to show."""
    rng = random.Random(1)
    for number in range(count):
        time.sleep(rng.uniform(0.3, 1.3))
        tile = megalens.Tile(TILES // 2 if number % 2 == 0 else TILES)
        began = time.perf_counter()
        run.wait(run.configure(dict.fromkeys(FLAGS, tile)), timeout=20)
        if not watching.is_set():
            return
        delays.append(time.perf_counter() - began)


def rank(rank: int, store: str, rounds: int, steps: int, watched_steps: int) -> None:
    """Be one process of the training, which talks by lines of JSON: train in blocks of every way, then on while the parent changes what is traced."""
    joined(rank, 2, store)
    job = _job()
    with traced(job.chunks, rank == 0, name="megatron bench", linger=0) as tracer:
        if rank == 0:
            said({"run": tracer.run_id, "hub": tracer.hub_pid})
            heard()
        distributed.barrier()
        measure = _Measure(rank, steps, job, tracer)
        blocks = measure.blocks(rounds)
        after = measure.watched(watched_steps)
        if rank == 0:
            said({"blocks": blocks, **measure.bytes(), "watched": after})
            heard()
        distributed.barrier()
    distributed.destroy_process_group()


def _job() -> Any:
    """Return the test's Megatron-Core GPT at a size where a step takes a while."""
    sys.path.insert(0, str(ROOT / "tests" / "kit"))
    import shape

    shape.SEQUENCE, shape.SAMPLES, shape.MICRO_BATCHES, shape.VOCABULARY = 128, 4, 2, 256
    from megatron_job import MegatronJob

    return MegatronJob(shape.Shape(layers=4, hidden=192, heads=4, groups=4, tp=2))


class _Measure:
    def __init__(self, rank: int, steps: int, job: Any, tracer: Any) -> None:
        self._rank, self._count = rank, steps
        self._job = job
        self._tracer = tracer
        self._step = 0
        self._bytes: list[float] = []
        self._peer_bytes: list[float] = []

    def blocks(self, rounds: int) -> dict[str, list[float]]:
        """Return the seconds a step of each way in each round, ways in random order."""
        self._train(4)
        return in_turns({"without": self._without, "traced": self._traced, "peer": self._peer}, rounds)

    def watched(self, steps: int) -> float:
        """Train on with everything traced and return the seconds a step."""
        self._configure(TILES)
        self._train(_SETTLE_STEPS, self._tracer.step)
        self._tell({"watch": True})
        seconds = self._train(steps, self._tracer.step)
        self._tell({"watch": False})
        return seconds

    def bytes(self) -> dict[str, float]:
        """Return the bytes of tensors that crossed between the processes in one step, both ways."""
        return {"bytes": statistics.fmean(self._bytes), "peer_bytes": statistics.fmean(self._peer_bytes)}

    def _received(self) -> int:
        # Nobody but this benchmark wants to know.
        return int(self._tracer.tensors.piece_bytes) if self._rank == 0 else 0

    def _without(self) -> float:
        self._hub(signal.SIGSTOP)
        seconds = self._train(self._count)
        self._hub(signal.SIGCONT)
        return seconds

    def _traced(self) -> float:
        self._configure(TILES)
        self._train(_SETTLE_STEPS, self._tracer.step)
        before = self._received()
        seconds = self._train(self._count, self._tracer.step)
        self._bytes.append((self._received() - before) / self._count)
        self._configure(None)
        self._train(_SETTLE_STEPS, self._tracer.step)
        return seconds

    def _peer(self) -> float:
        self._hub(signal.SIGSTOP)
        peer = GatheringPeer(self._job.chunks, self._rank)
        self._train(1)
        peer.bytes = 0
        seconds = self._train(self._count)
        self._peer_bytes.append(peer.bytes / self._count)
        peer.close()
        self._hub(signal.SIGCONT)
        return seconds

    def _train(self, count: int, around: Callable[[], AbstractContextManager[Any]] = nullcontext) -> float:
        def step() -> None:
            self._step += 1
            with around():
                self._job.train(self._step)

        def all_steps() -> None:
            timed(step, count)
            distributed.barrier()

        distributed.barrier()
        return timed(all_steps) / count

    def _configure(self, tiles: int | None) -> None:
        if self._rank == 0:
            self._tracer.configure({flag: tiles and megalens.Tile(tiles) for flag in FLAGS})
        distributed.barrier()

    def _hub(self, number: signal.Signals) -> None:
        if self._rank == 0 and self._tracer.hub_pid:
            os.kill(self._tracer.hub_pid, number)

    def _tell(self, message: dict[str, Any]) -> None:
        if self._rank == 0:
            said(message)


class GatheringPeer:
    """The baseline of a tensor-parallel training: every hook gathers the whole tensor at once, and rank 0 sends the tiles."""

    def __init__(self, chunks: list[nn.Module], rank: int) -> None:
        self.bytes = 0
        self._sender = Sender(_gathered_text) if rank == 0 else None
        self._handles = [
            module.register_forward_hook(self._hook(name))
            for chunk in chunks
            for name, module in chunk.named_modules()
            if name.endswith(("linear_qkv", "linear_fc1", "linear_fc2"))
        ]

    def close(self) -> None:
        """Take the hooks off, throw away what waits, and stop."""
        for handle in self._handles:
            handle.remove()
        if self._sender is not None:
            self._sender.close()

    def _hook(self, name: str) -> Any:
        def gather(module: nn.Module, inputs: tuple[Any, ...], output: tuple[Tensor, Any]) -> None:
            # [S, B, H/TP]; the second linear layer's is whole on both ranks, and gathered all the same where this is done.
            piece = output[0].detach()[:, :1].contiguous()
            pieces = [torch.empty_like(piece) for _ in range(2)] if self._sender else None
            distributed.gather(piece, pieces)
            self.bytes += piece.numel() * piece.element_size()
            if self._sender and pieces is not None:
                self._sender.put((name, torch.cat(pieces, -1)))

        return gather


def _gathered_text(item: tuple[str, Tensor]) -> str:
    name, tensor = item
    tiles = tiled(tensor.transpose(0, 1))
    return update(tiles, layer=name)
