"""The training side: hooks, compression on the device, and a producer thread that the step never waits for."""

from .errors import TracerError
from .flags import FLAGS, FlagKind
from .points import FlagPoints, IAdapter, ModelPoints, Source
from .reductions import parse_reduction
from .trace import trace
from .tracer import StepHandle, Tracer

__all__ = [
    "FLAGS",
    "FlagKind",
    "FlagPoints",
    "IAdapter",
    "ModelPoints",
    "Source",
    "StepHandle",
    "Tracer",
    "TracerError",
    "parse_reduction",
    "trace",
]
