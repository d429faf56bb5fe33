"""Training whose forward passes and backward passes run in different processes: who does what, and the training itself."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import SplitError

if TYPE_CHECKING:
    from .launcher import launch
    from .layout import SplitLayout
    from .place import SplitPlace
    from .planner import SplitPlan, plan
    from .rank_maps import rank_map
    from .seeding import seeded
    from .training import SplitTraining

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
    "SplitPlace": ".place",
    "SplitPlan": ".planner",
    "SplitTraining": ".training",
    "launch": ".launcher",
    "plan": ".planner",
    "rank_map": ".rank_maps",
    "seeded": ".seeding",
}


def __getattr__(name: str) -> Any:
    # What needs torch, or the engine, is loaded once it is used.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
