"""A pipeline that chooses its order, with plans of which it is known which is faster."""

from __future__ import annotations

import time
from typing import Any

from own_plans import plan_named
from pipeline_work import Part, data, loss_fn
from torch import Tensor

from megalens.instruments.pipeline import DynamicSchedule

MICRO_BATCHES, STAGES = 4, 2
GOOD = {**plan_named("1f1b", STAGES, MICRO_BATCHES), "schedule": "good"}
# One micro-batch after the other: no two ranks work at once.
BAD = {
    **GOOD,
    "schedule": "bad",
    "order": [" ".join(f"{rank}F{m} {rank}B{m}" for m in range(MICRO_BATCHES)) for rank in range(STAGES)],
}


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
