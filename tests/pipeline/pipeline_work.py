"""What each process of a pipeline does in the tests."""

from __future__ import annotations

import random
import time
from typing import Any

import torch
from own_plans import ALL, SHAPES, plan_named
from torch import Tensor, nn

from megalens.pipeline.placement import Placement
from megalens.pipeline.schedule import DynamicSchedule

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


def worst(held: dict[int, Part], layout: Placement, seed: int = 0) -> float:
    """The largest difference of a gradient from that of one process."""
    parts = layout.stages if layout.kind == "two_way" else layout.virtual_stages
    wanted, _ = reference(parts, layout.micro_batches, seed)
    off = 0.0
    for v, part in held.items():
        for parameter, gradient in zip(part.parameters(), wanted[v % parts], strict=True):
            off = max(off, (parameter.grad - gradient).abs().max().item())
            parameter.grad = None
    return off


def schedules(rank: int, stages: int, micro_batches: int) -> dict[str, float]:
    """Each schedule, and greedy in each placement."""
    off = {}
    for name in ALL:
        kind, chunks = SHAPES[name]
        layout = Placement(kind, stages, chunks, micro_batches)
        schedule, held = made(rank, layout, plan_named(name, stages, micro_batches))
        for seed in range(2):
            stepped(schedule, layout, seed)
            off[f"{name} {seed}"] = worst(held, layout, seed)
        assert [str(each.operation) for each in schedule.done] == schedule.order.order[rank].split()
        schedule.close()
    for kind, chunks in (("loop", 1), ("loop", 2), ("v", 2), ("two_way", 2)):
        for options in ({}, {"prefer": "depth"}, {"in_flight": 2}, {"static_shapes": False}):
            layout = Placement(kind, stages, chunks, micro_batches)
            schedule, held = made(rank, layout, "greedy", **options)
            for seed in range(2):
                stepped(schedule, layout, seed)
                off[f"greedy {kind} {chunks} {options} {seed}"] = worst(held, layout, seed)
            schedule.close()
    return off
