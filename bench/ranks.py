"""One process of a pipeline or of a split training that is measured; the first one writes what came of it."""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.utils.checkpoint import checkpoint

import megalens
from megalens.demo.model import Block, GPTConfig
from megalens.instruments.pipeline import DynamicSchedule
from megalens.instruments.pipeline.plan_type import Placement
from megalens.instruments.pipeline.split import SplitLayout, SplitTraining
from megalens.instruments.pipeline.stages.link import Link
from megalens.tracer import Place

__all__ = ["orders", "split"]

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


def _begun() -> tuple[int, int]:
    """Join the group that the launcher names; return this process's rank, and how many there are."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    return distributed.get_rank(), distributed.get_world_size()


def _traced(case: dict[str, Any], modules: list[nn.Module], place: Place) -> Any:
    """Return a tracer that records where the case says so."""
    if not case.get("record"):
        return None
    return megalens.trace(
        nn.ModuleList(modules),
        timeline="phases",
        record=case["record"],
        adapter=megalens.adapters.Adapter(layer="{i}"),
        place=place,
    )


def _stage_place(rank: int, world: int) -> Place:
    return Place(rank, pp=rank, tp_ranks=(rank,), world_size=world, pp_size=world)


def _together(step: Callable[[], None], tracer: Any) -> float:
    """Take a step; return the seconds from its beginning on the first process to its end on the last one."""
    distributed.barrier()
    began = time.perf_counter()
    with tracer.step() if tracer is not None else nullcontext():
        step()
    # All processes are on one machine and read one clock.
    both: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(both, (began, time.perf_counter()))
    return max(each[1] for each in both) - min(each[0] for each in both)


def _layers(count: int) -> nn.Module:
    return nn.Sequential(*(Block(_SIZES) for _ in range(count)))


def _batch(rows: int, message: int | None) -> tuple[Tensor, Tensor]:
    """Return inputs, for layers of a GPT or of so many bytes, and targets."""
    shape = (_SIZES.sequence, _SIZES.hidden) if message is None else (max(1, message // (4 * WIDTH)), WIDTH)
    return torch.randn(rows, *shape), torch.randn(rows, 1, 1)


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return (output * target).mean()


def _closed(tracer: Any, close: Callable[[], None]) -> str | None:
    """End a training; return where it was recorded."""
    distributed.barrier()
    folder = None if tracer is None else str(tracer.folder)
    if tracer is not None:
        tracer.close()
    close()
    return folder


def orders(job: dict[str, Any], out: str) -> None:
    """Run pipelines in the orders of a job's blocks; rank 0 writes what came of each."""
    rank, world = _begun()
    found = []
    for block in job["blocks"]:
        # All ways of a block are ready before the first is measured, and take turns.
        delay = _delays(block.get("delay"), rank)
        ways = [_Way(each, rank, world, delay) for each in block["cases"]]
        rng = random.Random(7)
        for _ in range(block.get("rounds", 1)):
            for way in rng.sample(ways, len(ways)):
                way.run(block["steps"])
        found += [way.close(world) for way in ways]
    if rank == 0:
        Path(out).write_text(json.dumps(found))
    distributed.barrier()
    distributed.destroy_process_group()


class _Way:
    def __init__(self, case: dict[str, Any], rank: int, world: int, delay: Any) -> None:
        self.case, self.rank = case, rank
        layout = Placement(case["placement"], world, case["chunks"], case["micro_batches"])
        parts = layout.virtual_stages

        def share(values: list[float], part: int) -> float:
            each = len(values) // parts
            return sum(values[part * each : (part + 1) * each])

        held = layout.held_by(rank)
        modules: list[nn.Module] = [
            _layers(case["layers"] // parts)
            if "layers" in case
            else TimedStage(
                *(share(case[what], v) for what in ("forward", "input", "weight")), case["kept"] // parts
            )
            for v in held
        ]
        self.first = any(layout.is_first(v) for v in held)
        self.last = any(layout.is_last(v) for v in held)
        self.tracer = _traced(case, modules, _stage_place(rank, world))
        self.schedule = DynamicSchedule(
            modules,
            case["micro_batches"],
            case["order"],
            _loss,
            placement=case["placement"],
            tracer=self.tracer,
            timeout=60,
        )
        if delay is not None:
            for link in self.schedule._links.values():
                _late(link, delay)
        self.kept = KeptBytes()
        self.x, self.target = _batch(case["micro_batches"], None if "layers" in case else case["message"])
        self.steps: list[float] = []
        self.peak = 0

    def run(self, steps: int) -> None:
        for at in range(steps + 1):
            self.kept.peak = self.kept.now
            with self.kept:
                took = _together(self._step, self.tracer)
            if at > 0:
                self.steps.append(took)
                self.peak = max(self.peak, self.kept.peak)

    def _step(self) -> None:
        args = (self.x,) if self.first else ()
        self.schedule.step(*args, target=self.target if self.last else None, return_outputs=False)

    def close(self, world: int) -> dict[str, Any]:
        peaks: list[Any] = [None] * world
        distributed.all_gather_object(peaks, self.peak)
        return {
            "name": self.case["name"],
            "steps_ms": [1e3 * each for each in self.steps],
            "step_ms": 1e3 * statistics.median(self.steps),
            "peaks": peaks,
            "folder": _closed(self.tracer, self.schedule.close),
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


class _Recomputed(nn.Module):
    """Computes its activations anew for the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return result


def split(job: dict[str, Any], out: str) -> None:
    """Run the training of a case, split or a pipeline; rank 0 writes how long its steps took, and where it was recorded."""
    if job.get("cpus"):
        os.sched_setaffinity(0, job["cpus"][int(os.environ["RANK"])])
    rank, world = _begun()
    step, tracer, close = (_split if job["kind"] == "split" else _pipeline)(job, rank, world)
    taken = [1e3 * _together(step, tracer) for _ in range(job["steps"] + 1)][1:]
    folder = _closed(tracer, close)
    distributed.destroy_process_group()
    if rank == 0:
        Path(out).write_text(json.dumps({"steps_ms": taken, "folder": folder}))


def _module(case: dict[str, Any], stage: int, role: str) -> nn.Module:
    facts = case["stages"][stage]
    if "layers" in facts:
        return _layers(facts["layers"])
    if role == "forward":
        return TimedStage(facts["forward"], 0.0, 0.0, 0)
    return TimedStage(facts["recompute"], facts["backward"], 0.0, 0)


def _given(case: dict[str, Any]) -> tuple[Tensor, Tensor]:
    return _batch(case["micro_batches"], None if "layers" in case["stages"][0] else case["message"])


def _sgd(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=1e-6)


def _split(case: dict[str, Any], rank: int, world: int) -> Any:
    stages = len(case["stages"])
    layout = SplitLayout.of(pipeline=stages, last_forward=case["last_forward"], world=world)
    place = layout.place(rank)
    module = _module(case, place.stage, place.role)
    tracer = _traced(case, [module], layout.tracer_place(rank))
    training = SplitTraining(
        module,
        layout=layout,
        loss_fn=_loss,
        optimizer=_sgd,
        micro_batches=case["micro_batches"],
        ahead=case["ahead"],
        timeout=60,
        tracer=tracer,
    )
    x, target = _given(case)
    inputs = (x,) if place.stage == 0 else ()
    given = target if place.stage == stages - 1 else None
    return lambda: training.step(*inputs, target=given), tracer, training.close


def _pipeline(case: dict[str, Any], rank: int, world: int) -> Any:
    module = _module(case, rank, "backward")
    stage = _Recomputed(module) if case["recompute"] else module
    tracer = _traced(case, [stage], _stage_place(rank, world))
    schedule = DynamicSchedule(stage, case["micro_batches"], "1f1b", _loss, tracer=tracer, timeout=60)
    optimizer = _sgd(stage.parameters())
    x, target = _given(case)
    inputs = (x,) if rank == 0 else ()
    given = target if rank == world - 1 else None

    def step() -> None:
        schedule.step(*inputs, target=given, return_outputs=False)
        optimizer.step()
        optimizer.zero_grad()

    return step, tracer, schedule.close
