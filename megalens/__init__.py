"""See inside a transformer's training run from JupyterLab.

Importing this package pulls in neither torch nor jupyter_server nor ipywidgets: every public name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import adapters, pipeline, split
    from .client.direction import save_direction
    from .client.errors import ClientError
    from .engine.errors import EngineError
    from .generation.errors import GenerationError
    from .hub.errors import HubError
    from .launch import add_arguments, trace_from
    from .notebook import NotebookRun, connect, open, open_all
    from .pipeline.errors import PipelineError
    from .protocol import (
        AddVector,
        BitFlip,
        Empty,
        MegalensError,
        Noise1,
        Noise2,
        NoOp,
        Offset,
        Peaks,
        Projection,
        ProtocolError,
        Tile,
    )
    from .report.errors import ReportError
    from .serving import serve
    from .split.errors import SplitError
    from .tracer import Tracer
    from .tracer.errors import TracerError
    from .trainermon import TrainerMon
    from .training import trace
    from .training_monitor import monitor
    from .training_statistics import log_statistics
    from .widgets.errors import WidgetError

__all__ = [
    "WidgetError",
    "TracerError",
    "ReportError",
    "MegalensError",
    "HubError",
    "EngineError",
    "GenerationError",
    "PipelineError",
    "ClientError",
    "AddVector",
    "BitFlip",
    "Empty",
    "NoOp",
    "Noise1",
    "Noise2",
    "NotebookRun",
    "Offset",
    "Peaks",
    "Projection",
    "ProtocolError",
    "SplitError",
    "Tile",
    "Tracer",
    "TrainerMon",
    "__version__",
    "adapters",
    "add_arguments",
    "connect",
    "log_statistics",
    "monitor",
    "open",
    "open_all",
    "pipeline",
    "save_direction",
    "serve",
    "split",
    "trace",
    "trace_from",
]

_HOMES = {
    ".protocol": (
        "AddVector",
        "BitFlip",
        "Empty",
        "MegalensError",
        "NoOp",
        "Noise1",
        "Noise2",
        "Offset",
        "Peaks",
        "Projection",
        "ProtocolError",
        "Tile",
    ),
    ".client.direction": ("save_direction",),
    ".client.errors": ("ClientError",),
    ".engine.errors": ("EngineError",),
    ".generation.errors": ("GenerationError",),
    ".hub.errors": ("HubError",),
    ".pipeline.errors": ("PipelineError",),
    ".report.errors": ("ReportError",),
    ".split.errors": ("SplitError",),
    ".tracer.errors": ("TracerError",),
    ".widgets.errors": ("WidgetError",),
    ".notebook": ("NotebookRun", "connect", "open", "open_all"),
    ".tracer": ("Tracer",),
    ".trainermon": ("TrainerMon",),
    ".serving": ("serve",),
    ".training": ("trace",),
    ".training_statistics": ("log_statistics",),
    ".training_monitor": ("monitor",),
    ".launch": ("add_arguments", "trace_from"),
    "._version": ("__version__",),
}


def __getattr__(name: str) -> Any:
    if name in ("adapters", "pipeline", "split"):
        return import_module(f".{name}", __name__)
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(home, __name__), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'megalens' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "megalens"}]
