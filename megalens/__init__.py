"""See inside a transformer's training run from JupyterLab.

Importing this package pulls in neither torch nor jupyter_server nor ipywidgets: every public name is loaded
on first use.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._moved import follow_moves
from ._needed import say_what_is_missing

if TYPE_CHECKING:
    from . import adapters
    from .api.launch import add_arguments, trace_from
    from .api.notebook import NotebookRun, connect, open, open_all, show
    from .api.statistics import log_statistics
    from .api.trace import trace
    from .hub.options import HubError
    from .instruments import pipeline
    from .instruments.generation.errors import GenerationError
    from .instruments.generation.requests import save_direction
    from .instruments.generation.serving import serve
    from .instruments.monitor.trainermon.trainermon import TrainerMon
    from .instruments.monitor.training_monitor import monitor
    from .instruments.pipeline import split
    from .instruments.pipeline.errors import PipelineError, SplitError
    from .pictures.engine.process import EngineError
    from .pictures.report.build import ReportError
    from .pictures.report.many import report_all
    from .pictures.widgets.base import WidgetError
    from .pictures.widgets.comm import FrontEndError, use_widgets
    from .protocol import (
        AddVector,
        BitFlip,
        Empty,
        Histogram,
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
    from .runs.compared_runs import compare
    from .runs.errors import ClientError
    from .runs.many import ask_all
    from .tracer import Tracer
    from .tracer.errors import TracerError

__all__ = [
    "WidgetError",
    "TracerError",
    "ReportError",
    "MegalensError",
    "HubError",
    "EngineError",
    "FrontEndError",
    "GenerationError",
    "PipelineError",
    "ClientError",
    "AddVector",
    "BitFlip",
    "Empty",
    "Histogram",
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
    "ask_all",
    "compare",
    "connect",
    "log_statistics",
    "monitor",
    "open",
    "open_all",
    "pipeline",
    "report_all",
    "save_direction",
    "serve",
    "show",
    "split",
    "trace",
    "trace_from",
    "use_widgets",
]

follow_moves()
say_what_is_missing()

_HOMES = {
    ".protocol": (
        "AddVector",
        "BitFlip",
        "Empty",
        "Histogram",
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
    ".instruments.generation.requests": ("save_direction",),
    ".runs.compared_runs": ("compare",),
    ".runs.errors": ("ClientError",),
    ".runs.many": ("ask_all",),
    ".pictures.report.many": ("report_all",),
    ".pictures.engine.process": ("EngineError",),
    ".instruments.generation.errors": ("GenerationError",),
    ".hub.options": ("HubError",),
    ".instruments.pipeline.errors": (
        "PipelineError",
        "SplitError",
    ),
    ".pictures.report.build": ("ReportError",),
    ".tracer.errors": ("TracerError",),
    ".pictures.widgets.base": ("WidgetError",),
    ".pictures.widgets.comm": ("FrontEndError", "use_widgets"),
    ".api.notebook": ("NotebookRun", "connect", "open", "open_all", "show"),
    ".tracer": ("Tracer",),
    ".instruments.monitor.trainermon.trainermon": ("TrainerMon",),
    ".instruments.generation.serving": ("serve",),
    ".api.trace": ("trace",),
    ".api.statistics": ("log_statistics",),
    ".instruments.monitor.training_monitor": ("monitor",),
    ".api.launch": ("add_arguments", "trace_from"),
    "._version": ("__version__",),
}


def __getattr__(name: str) -> Any:
    if name in ("adapters", "pipeline", "split"):
        # The last two by what stands in for their paths.
        return import_module(f"{__name__}.{name}")
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(_imported(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'megalens' has no attribute {name!r}")


def _imported(home: str) -> Any:
    """Import a module without a search for garbage meanwhile.

    Among what torch holds it takes 70 ms, and finds nothing.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(home, __name__)
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "megalens"}]
