"""The training side: hooks, compression on the device, and a producer thread that the step never waits for."""

from .errors import TracerError
from .flags import FLAGS, FlagKind
from .launch import add_arguments, trace_from
from .place import Place
from .points import FlagPoints, IAdapter, ModelPoints, Shards, SitePoints, Source
from .reductions import parse_reduction
from .statistics.log_statistics import log_statistics
from .statistics.logger import StatisticsLogger
from .trace import trace
from .tracer import StepHandle, Tracer

__all__ = [
    "add_arguments",
    "trace_from",
    "FLAGS",
    "FlagKind",
    "FlagPoints",
    "IAdapter",
    "ModelPoints",
    "Place",
    "Shards",
    "SitePoints",
    "Source",
    "StatisticsLogger",
    "StepHandle",
    "Tracer",
    "TracerError",
    "log_statistics",
    "parse_reduction",
    "trace",
]
