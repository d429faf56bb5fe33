"""Pipeline parallelism: plans of a step's order, and the schedule that runs them in torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import PipelineError
from .plan_type import Plan, check_plan

if TYPE_CHECKING:
    from .planner import plan
    from .schedule import DynamicSchedule

__all__ = ["DynamicSchedule", "PipelineError", "Plan", "check_plan", "plan"]

_HOMES = {"DynamicSchedule": ".schedule", "plan": ".planner"}


def __getattr__(name: str) -> Any:
    # What needs torch, or the engine, is loaded once it is used.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
