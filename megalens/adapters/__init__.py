"""Where the trace points of known models are, and what trainers of others take."""

from typing import TYPE_CHECKING, Any

from .adapter import Adapter
from .find import ADAPTERS, find_adapter, find_moments, find_points
from .layer_roles import Mixture
from .megatron_core import MegatronAdapter
from .megatron_metric import moments_metric
from .structure import GPT_TABLE, StructureAdapter
from .table import sites_of
from .torch_coordinates import mesh_place, torch_coordinates

if TYPE_CHECKING:
    from ..api.callback import MegalensCallback
    from ..api.megatron_observer import MegatronObserver

__all__ = [
    "ADAPTERS",
    "GPT_TABLE",
    "Adapter",
    "MegalensCallback",
    "MegatronAdapter",
    "MegatronObserver",
    "Mixture",
    "StructureAdapter",
    "find_adapter",
    "find_moments",
    "find_points",
    "mesh_place",
    "moments_metric",
    "sites_of",
    "torch_coordinates",
]


def __getattr__(name: str) -> Any:
    # They begin a trace, which composes this room with the tracer; so they are in `api`, and only reached
    # from here.
    if name == "MegalensCallback":
        from ..api.callback import MegalensCallback

        return MegalensCallback
    if name == "MegatronObserver":
        from ..api.megatron_observer import MegatronObserver

        return MegatronObserver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
