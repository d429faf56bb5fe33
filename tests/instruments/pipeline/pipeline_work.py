"""What each process of a pipeline does in the tests."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import torch
from own_plans import ALL, SHAPES, plan_named, random_plan
from strikes import strike_in, told_and_ended
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from megalens.instruments.pipeline.plan_type import Placement
from megalens.instruments.pipeline.schedule import DynamicSchedule

__all__ = ["Part", "loss_fn", "reference"]

WIDTH, SAMPLES = 6, 2


class Part(nn.Module):
    """One virtual stage: its outputs are of another shape than its inputs, and it may be late."""

    def __init__(self, virtual: int, count: int, delay: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(100 + virtual)
        # Every boundary has a width of its own.
        self.first = nn.Linear(WIDTH + virtual, WIDTH + virtual)
        self.second = nn.Linear(WIDTH + virtual, WIDTH + virtual + 1)
        self.scale = nn.Parameter(torch.ones(1))
        self.delay = delay

    def forward(self, x: Tensor) -> Tensor:
        if self.delay:
            time.sleep(random.random() * self.delay)
        return torch.tanh(self.second(torch.tanh(self.first(x)) + x)) * self.scale


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    return (output.sum(-1) - target).square().mean()


def data(micro_batches: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(SAMPLES * micro_batches, WIDTH, generator=generator),
        torch.randn(SAMPLES * micro_batches, generator=generator),
    )


def reference(parts: int, micro_batches: int, seed: int = 0) -> tuple[list[list[Tensor]], list[float]]:
    """Gradients by part, and losses, in one process."""
    model = [Part(v, parts) for v in range(parts)]
    x, target = data(micro_batches, seed)
    losses = []
    for each, wanted in zip(x.chunk(micro_batches), target.chunk(micro_batches), strict=True):
        for part in model:
            each = part(each)
        loss = loss_fn(each, wanted)
        losses.append(loss.item())
        (loss / micro_batches).backward()
    return [[p.grad for p in part.parameters()] for part in model], losses


def made(
    rank: int,
    layout: Placement,
    order: Any,
    ranks: list[int] | None = None,
    delay: float = 0.0,
    **options: Any,
) -> tuple[DynamicSchedule, dict[int, Part]]:
    ranks = ranks or list(range(layout.stages))
    parts = layout.stages if layout.kind == "two_way" else layout.virtual_stages
    held = {v: Part(v % parts, parts, delay) for v in layout.held_by(ranks.index(rank))}
    options.setdefault("timeout", 60)
    schedule = DynamicSchedule(
        list(held.values()), layout.micro_batches, order, loss_fn, placement=layout.kind, **options
    )
    return schedule, held


def stepped(schedule: DynamicSchedule, layout: Placement, seed: int = 0) -> list[float]:
    x, target = data(layout.micro_batches, seed)
    held = layout.held_by(schedule.stage)
    args = (x,) if any(layout.is_first(v) for v in held) else ()
    last = any(layout.is_last(v) for v in held)
    losses: list[Tensor] = []
    out = schedule.step(*args, target=target if last else None, losses=losses)
    assert (out is not None) == last
    return [each.item() for each in losses]


def apart(module: nn.Module, gradients: Sequence[Tensor]) -> float:
    """The largest difference of a module's gradients from others; they are cleared."""
    off = 0.0
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        found = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
        off = max(off, (found - gradient).abs().max().item())
        parameter.grad = None
    return off


def worst(held: dict[int, Part], layout: Placement, seed: int = 0) -> float:
    """The largest difference of a gradient from that of one process."""
    parts = layout.stages if layout.kind == "two_way" else layout.virtual_stages
    wanted, _ = reference(parts, layout.micro_batches, seed)
    return max(apart(part, wanted[v % parts]) for v, part in held.items())


def schedules(rank: int, stages: int, micro_batches: int, planned: bool) -> dict[str, float]:
    """Each schedule, by its name or as these tests write it, and greedy in each placement."""
    off = {}
    for name in ALL:
        kind, chunks = SHAPES[name]
        layout = Placement(kind, stages, chunks, micro_batches)
        order = name if planned else plan_named(name, stages, micro_batches)
        schedule, held = made(rank, layout, order)
        assert schedule.running == name
        for seed in range(2):
            stepped(schedule, layout, seed)
            off[f"{name} {seed}"] = worst(held, layout, seed)
        assert [str(each.operation) for each in schedule.done] == schedule.order.order[rank].split()
        schedule.close()
    # Each placement without options, and each with one of them.
    depth, few, growing = {"prefer": "depth"}, {"in_flight": 2}, {"static_shapes": False}
    for kind, chunks, option in (
        ("loop", 1, growing),
        ("loop", 2, depth),
        ("v", 2, few),
        ("two_way", 2, few),
    ):
        for options in ({}, option):
            layout = Placement(kind, stages, chunks, micro_batches)
            schedule, held = made(rank, layout, "greedy", **options)
            for seed in range(2):
                stepped(schedule, layout, seed)
                off[f"greedy {kind} {chunks} {options} {seed}"] = worst(held, layout, seed)
            schedule.close()
    return off


def random_plans(rank: int, stages: int, first: int, count: int, delay: float) -> dict[str, float]:
    """Random plans one after the other, with modules that take random times: each comes into force while the one before runs."""
    off = {}
    shapes = [("loop", 1, 3), ("loop", 2, 2), ("v", 2, 3), ("two_way", 2, 4)]
    for at, (kind, chunks, micro_batches) in enumerate(shapes):
        layout = Placement(kind, stages, chunks, micro_batches)
        plans = [
            random_plan(first + n, stages, micro_batches, kind, chunks) for n in range(at, count, len(shapes))
        ]
        schedule, held = made(rank, layout, plans[0], delay=delay)
        schedule.use(plans[1])
        stepped(schedule, layout)
        off[f"{plans[0]['schedule']} at first"] = worst(held, layout)
        for n in range(1, len(plans)):
            if n + 1 < len(plans) and rank == 0:
                schedule.use(plans[n + 1])
            stepped(schedule, layout, n)
            assert schedule.order.schedule == plans[n]["schedule"], (schedule.order.schedule, n)
            assert [str(each.operation) for each in schedule.done] == plans[n]["order"][rank].split()
            off[plans[n]["schedule"]] = worst(held, layout, n)
        schedule.close()
    return off


def greedy_runs(rank: int, stages: int, count: int, delay: float) -> float:
    """The greedy order many times, with modules that take random times."""
    off = 0.0
    for kind, chunks in (("loop", 2), ("v", 2), ("two_way", 2)):
        layout = Placement(kind, stages, chunks, 4)
        schedule, held = made(rank, layout, "greedy", delay=delay)
        for n in range(count):
            stepped(schedule, layout, n)
            off = max(off, worst(held, layout, n))
        schedule.close()
    return off


def switching(rank: int, stages: int, steps: int) -> list[tuple[str, list[str]]]:
    """Plans and the greedy rule by turns, asked for on rank 0 at any time; what each step ran by, and did."""
    random.seed(rank)
    layout = Placement("loop", stages, 2, 4)
    plans = [plan_named(name, stages, 4) for name in ("interleaved_1f1b", "breadth_first", "depth_first")]
    schedule, held = made(rank, layout, plans[0], delay=0.003 * (1 + rank))
    ran = []
    for step in range(steps):
        if rank == 0 and random.random() < 0.7:
            schedule.use(random.choice([*plans, "greedy"]))
        stepped(schedule, layout, step)
        assert worst(held, layout, step) < 1e-6
        ran.append(
            (
                str(schedule.order.to_json().get("schedule", "greedy")),
                [str(each.operation) for each in schedule.done],
            )
        )
        if step == steps // 2:
            # Forward passes alone, between two steps.
            x, target = data(4, step)
            losses: list[Tensor] = []
            schedule.eval(
                *((x,) if rank == 0 else ()), target=target if rank == stages - 1 else None, losses=losses
            )
            if losses:
                wanted = reference(layout.virtual_stages, 4, step)[1]
                assert max(abs(a.item() - b) for a, b in zip(losses, wanted, strict=True)) < 1e-6
    schedule.close()
    return ran


def stricken(rank: int, order: str, strike: str, timeout: float, folder: str) -> None:
    """The last rank dies, or stops, in its second step; the others write what they are told, and after how many seconds, and end."""
    layout = Placement("loop", 3, 1, 4)
    plan = "greedy" if order == "greedy" else plan_named(order, 3, 4)
    schedule, held = made(rank, layout, plan, timeout=timeout)
    stepped(schedule, layout)
    if rank == 2:
        strike_in(next(iter(held.values())), strike, folder)

    def step() -> None:
        stepped(schedule, layout)

    told_and_ended(rank, folder, step, step, 0 if rank else 2)


def growing(rank: int, stages: int) -> float:
    """Batches of another size each step, in a fixed order and in a dynamic one by turns."""
    off = 0.0
    layout = Placement("loop", stages, 2, 4)
    plan = plan_named("interleaved_1f1b", stages, 4)
    schedule, held = made(rank, layout, plan, static_shapes=False)
    for step in range(6):
        if step % 2:
            schedule.use("greedy" if step == 1 else plan)
        samples = 4 * (1 + step)
        x, target = torch.randn(samples, WIDTH), torch.randn(samples)
        distributed.broadcast(x, 0)
        distributed.broadcast(target, 0)
        schedule.step(*((x,) if rank == 0 else ()), target=target if rank == stages - 1 else None)
        model = [Part(v, 2 * stages) for v in range(2 * stages)]
        for each, wanted in zip(x.chunk(4), target.chunk(4), strict=True):
            for part in model:
                each = part(each)
            (loss_fn(each, wanted) / 4).backward()
        for v, part in held.items():
            off = max(off, apart(part, [each.grad for each in model[v].parameters()]))
    schedule.close()
    return off


class _Late(Part):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.05)
        return super().forward(x)


def arrivals(rank: int, late: int) -> tuple[list[str], float]:
    """What a rank does by the greedy rule where one of two is late, and how long it waited, in shares of the step."""
    module = (_Late if rank == late else Part)(rank, 2)
    schedule = DynamicSchedule(module, 4, "greedy", loss_fn, timeout=60)
    x, target = data(4)
    for _ in range(2):
        schedule.step(*((x,) if rank == 0 else ()), target=target if rank else None)
    schedule.close()
    return [str(each.operation) for each in schedule.done], sum(each.waited for each in schedule.done) / 1e9
