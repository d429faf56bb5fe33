"""One process of a pipeline that is measured: runs the cases of a file, and the first one writes what came of them."""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn

import megalens
from megalens.demo.model import Block, GPTConfig
from megalens.instruments.pipeline import DynamicSchedule
from megalens.instruments.pipeline.plan_type import Placement
from megalens.instruments.pipeline.stages.link import Link
from megalens.tracer import Place

__all__ = ["KeptBytes", "TimedStage"]

WIDTH = 8
_SIZES = GPTConfig(hidden=256, sequence=128)


class _Held:
    """A tensor that autograd keeps, counted for as long as it does."""

    def __init__(self, tensor: Tensor, kept: KeptBytes) -> None:
        self.tensor, self._kept = tensor, kept
        self._bytes = tensor.numel() * tensor.element_size()
        kept.add(self._bytes)

    def __del__(self) -> None:
        self._kept.add(-self._bytes)


class KeptBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that autograd keeps for backward passes, of tensors that are no parameters; ``peak`` is the most since it was set to 0."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        super().__init__(self._pack, self._unpack)

    def add(self, nbytes: int) -> None:
        self.now += nbytes
        self.peak = max(self.peak, self.now)

    def _pack(self, tensor: Tensor) -> Any:
        return tensor if isinstance(tensor, nn.Parameter) else _Held(tensor, self)

    @staticmethod
    def _unpack(held: Any) -> Tensor:
        tensor: Tensor = held.tensor if isinstance(held, _Held) else held
        return tensor


class _Work(torch.autograd.Function):
    """Sleeps in both passes: a device that computes leaves the processor alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_ms: float, backward_ms: float, kept: int) -> Tensor:
        time.sleep(forward_ms / 1e3)
        ctx.backward_ms = backward_ms
        if kept:
            ctx.save_for_backward(torch.empty(kept, dtype=torch.uint8))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        time.sleep(ctx.backward_ms / 1e3)
        return gradient, None, None, None


class TimedStage(nn.Module):
    """A part of a model whose forward pass, input gradient and weight gradients take given times, in ms, and which keeps given bytes between them."""

    def __init__(self, forward_ms: float, input_ms: float, weight_ms: float, kept: int) -> None:
        super().__init__()
        self.times = forward_ms, input_ms, weight_ms
        self.kept = kept
        self.scale = nn.Parameter(torch.ones(1))
        # As an embedding does on the first stage: what comes out of it has a gradient.
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        forward_ms, input_ms, weight_ms = self.times
        # The weights' gradients hang on a path of their own, as they do in a layer.
        scale = _Work.apply(self.scale, 0.0, weight_ms, 0)
        result: Tensor = _Work.apply(x + self.shift, forward_ms, input_ms, self.kept) * scale
        return result


def main() -> None:
    """Run the cases of the file that is the first argument; ``argv[2]`` is where rank 0 writes."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    job = json.loads(Path(sys.argv[1]).read_text())
    rank, world = distributed.get_rank(), distributed.get_world_size()
    found = []
    for block in job["blocks"]:
        # All ways of a block are ready before the first is measured, and take turns.
        delay = _delays(block.get("delay"), rank)
        ways = [_Way(each, rank, world, delay) for each in block["cases"]]
        rng = random.Random(7)
        for _ in range(block.get("rounds", 1)):
            for way in rng.sample(ways, len(ways)):
                way.run(block["steps"])
        for way in ways:
            found.append(way.close(world))
    if rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(found))
    distributed.barrier()
    distributed.destroy_process_group()


class _Way:
    def __init__(self, case: dict[str, Any], rank: int, world: int, delay: Any) -> None:
        self.case, self.rank = case, rank
        layout = Placement(case["placement"], world, case["chunks"], case["micro_batches"])
        count = layout.virtual_stages
        parts = world if case["placement"] == "two_way" else count
        self.layout = layout

        def share(values: list[float], part: int) -> float:
            each = len(values) // parts
            return sum(values[part * each : (part + 1) * each])

        held = layout.held_by(rank)
        modules: list[nn.Module] = [
            nn.Sequential(*(Block(_SIZES) for _ in range(case["layers"] // parts)))
            if "layers" in case
            else TimedStage(
                share(case["forward"], v % parts),
                share(case["input"], v % parts),
                share(case["weight"], v % parts),
                case["kept"] // parts,
            )
            for v in held
        ]
        self.first = any(layout.is_first(v) for v in held)
        self.last = any(layout.is_last(v) for v in held)
        self.tracer = None
        if case.get("record"):
            self.tracer = megalens.trace(
                nn.ModuleList(modules),
                timeline="phases",
                record=case["record"],
                adapter=megalens.adapters.Adapter(layer="{i}"),
                place=Place(rank, pp=rank, tp_ranks=(rank,), world_size=world, pp_size=world),
            )
        self.schedule = DynamicSchedule(
            modules,
            case["micro_batches"],
            case["order"],
            lambda output, target: (output * target).mean(),
            placement=case["placement"],
            tracer=self.tracer,
            timeout=60,
        )
        if delay is not None:
            for link in self.schedule._links.values():
                _late(link, delay)
        self.kept = KeptBytes()
        rows = case["micro_batches"]
        self.x = (
            torch.randn(rows, _SIZES.sequence, _SIZES.hidden)
            if "layers" in case
            else torch.randn(rows, case["message"] // (4 * WIDTH), WIDTH)
        )
        self.target = torch.randn(rows, 1, 1)
        self.steps: list[float] = []
        self.peak = 0

    def run(self, steps: int) -> None:
        for at in range(steps + 1):
            distributed.barrier()
            self.kept.peak = self.kept.now
            began = time.perf_counter()
            with self.kept:
                if self.tracer is None:
                    self._step()
                else:
                    with self.tracer.step():
                        self._step()
            ended = time.perf_counter()
            # All processes are on one machine and read one clock.
            both: list[Any] = [None] * distributed.get_world_size()
            distributed.all_gather_object(both, (began, ended))
            if at > 0:
                self.steps.append(max(each[1] for each in both) - min(each[0] for each in both))
                self.peak = max(self.peak, self.kept.peak)

    def _step(self) -> None:
        args = (self.x,) if self.first else ()
        self.schedule.step(*args, target=self.target if self.last else None, return_outputs=False)

    def close(self, world: int) -> dict[str, Any]:
        peaks: list[Any] = [None] * world
        distributed.all_gather_object(peaks, self.peak)
        running, decisions = self.schedule.running, self.schedule.decisions[-1:]
        distributed.barrier()
        folder = None
        if self.tracer is not None:
            folder = str(self.tracer.folder)
            self.tracer.close()
        self.schedule.close()
        return {
            "name": self.case["name"],
            "steps_ms": [1e3 * each for each in self.steps],
            "step_ms": 1e3 * statistics.median(self.steps),
            "peaks": peaks,
            "running": running,
            "decisions": decisions,
            "folder": folder,
        }


def _delays(pattern: dict[str, Any] | None, rank: int) -> Any:
    """Return what says how late the next message to a rank is, in s; None where none is."""
    if pattern is None:
        return None
    rng = random.Random(100 + rank)
    sent = [0]

    def late(peer: int) -> float:
        sent[0] += 1
        ms = pattern["ms"]
        if pattern["kind"] == "link":
            return ms / 1e3 if {rank, peer} == set(pattern["ranks"]) else 0.0
        if pattern["kind"] == "random":
            return rng.expovariate(1 / ms) / 1e3
        # Every fourth message is held up.
        return 4 * ms / 1e3 if sent[0] % 4 == 0 else 0.0

    return late


def _late(link: Link, late: Any) -> None:
    """Have a link send each message later, in their order, from another thread: the training thread goes on at once, as with a slow network."""
    send, flush = link.send, link.flush
    waiting: deque[tuple[float, Any]] = deque()
    change = threading.Condition()
    busy = [0]

    def delayed(key: Any, tensors: Any, headers: bool) -> None:
        with change:
            waiting.append((time.perf_counter() + late(link.peer), (key, tensors, headers)))
            busy[0] += 1
            change.notify_all()

    def flushed(seconds: float) -> None:
        with change:
            change.wait_for(lambda: busy[0] == 0, seconds)

    def work() -> None:
        while True:
            with change:
                change.wait_for(lambda: bool(waiting))
                due, given = waiting.popleft()
            time.sleep(max(0.0, due - time.perf_counter()))
            send(*given)
            flush(60.0)
            with change:
                busy[0] -= 1
                change.notify_all()

    threading.Thread(target=work, daemon=True).start()
    link.send, link.flush = delayed, flushed  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
