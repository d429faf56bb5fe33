"""Where the trace points of known models are, and the callback for Hugging Face trainers."""

from typing import TYPE_CHECKING, Any

from .adapter import Adapter
from .find import ADAPTERS, find_adapter, find_moments, find_points
from .layer_roles import Mixture
from .megatron_core import MegatronAdapter
from .structure import GPT_TABLE, StructureAdapter
from .table import sites_of
from .torch_coordinates import mesh_place, torch_coordinates

if TYPE_CHECKING:
    from ..api.callback import MegalensCallback

__all__ = [
    "ADAPTERS",
    "GPT_TABLE",
    "Adapter",
    "MegalensCallback",
    "MegatronAdapter",
    "Mixture",
    "StructureAdapter",
    "find_adapter",
    "find_moments",
    "find_points",
    "mesh_place",
    "sites_of",
    "torch_coordinates",
]


def __getattr__(name: str) -> Any:
    if name == "MegalensCallback":
        # It begins a trace, which composes this room with the tracer; so it is in `api`, and only reached
        # from here.
        from ..api.callback import MegalensCallback

        return MegalensCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
