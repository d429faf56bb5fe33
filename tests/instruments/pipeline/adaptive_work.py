"""A pipeline that chooses its order, with plans of which it is known which is faster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from own_plans import plan_named
from pipeline_work import Part, data, loss_fn
from torch import Tensor

from megalens.instruments.pipeline import DynamicSchedule, order_control
from megalens.instruments.pipeline.adaptive import Adaptive

MICRO_BATCHES, STAGES = 4, 2
GOOD = {**plan_named("1f1b", STAGES, MICRO_BATCHES), "schedule": "good"}
# One micro-batch after the other: no two ranks work at once.
BAD = {
    **GOOD,
    "schedule": "bad",
    "order": [" ".join(f"{rank}F{m} {rank}B{m}" for m in range(MICRO_BATCHES)) for rank in range(STAGES)],
}


# What a step takes, in ms, on a machine that does nothing else; the greedy rule is as fast as the better plan.
TAKES = {"good": 36.0, "bad": 52.0}


class Timed(Adaptive):
    """Takes steps to be as long as they are on a machine that does nothing else."""

    counted = itertools.count()

    def step_ended(self, order: Any, name: str, ms: float, done: Sequence[Any]) -> None:
        ms = TAKES.get(name, TAKES["good"]) + 0.2 * (next(self.counted) % 3)
        super().step_ended(order, name, ms, done)


class Slow(Part):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.006)
        return super().forward(x)


def chosen(
    rank: int, first: str, promised: dict[str, float], steps: int
) -> tuple[list[str], list[str], list[Any]]:
    """What each step ran by, what was decided and why, and what the planner was asked with."""
    asked: list[Any] = []

    def compare(layout: Any, times: Any, running: Any) -> list[Any]:
        asked.append((times, None if running is None else running.schedule))
        plans = [(each, promised[each["schedule"]]) for each in (GOOD, BAD) if each["schedule"] in promised]
        if running is not None:
            plans.insert(0, (running.to_json(), promised.get(running.schedule, 30.0)))
        return plans

    order_control.Adaptive = Timed
    schedule = DynamicSchedule(
        Slow(rank, STAGES),
        MICRO_BATCHES,
        {"good": GOOD, "bad": BAD, "adaptive": "adaptive"}[first],
        loss_fn,
        timeout=60,
        compare=compare,
    )
    x, target = data(MICRO_BATCHES)
    ran = []
    if first != "adaptive":
        schedule.use("adaptive")
    for _ in range(steps):
        schedule.step(*((x,) if rank == 0 else ()), target=target if rank else None)
        ran.append(schedule.running)
    schedule.close()
    return ran, schedule.decisions, asked
