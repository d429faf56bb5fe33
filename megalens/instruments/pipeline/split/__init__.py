"""Training with forward and backward passes in different processes: the layout, and the training itself."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import SplitError

if TYPE_CHECKING:
    from .layout import SplitLayout, SplitPlace
    from .planner import SplitPlan, plan, rank_map
    from .start import launch
    from .training import SplitTraining
    from .worker import seeded

__all__ = [
    "SplitError",
    "SplitLayout",
    "SplitPlace",
    "SplitPlan",
    "SplitTraining",
    "launch",
    "plan",
    "rank_map",
    "seeded",
]

_HOMES = {
    "SplitLayout": ".layout",
    "SplitPlace": ".layout",
    "SplitPlan": ".planner",
    "SplitTraining": ".training",
    "launch": ".start",
    "plan": ".planner",
    "rank_map": ".planner",
    "seeded": ".worker",
}


def __getattr__(name: str) -> Any:
    # What needs torch, or the engine, is loaded once it is used.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
