"""The training side: hooks, compression on the device, and a producer thread that no step waits for."""

from .errors import TracerError
from .instrument import Host, Instrument
from .moments.logger import StatisticsLogger
from .place import Place
from .points import FLAGS, FlagKind, FlagPoints, IAdapter, ModelPoints, Shards, SitePoints, Source
from .tensors.reductions import parse_reduction
from .tracer import StepHandle, Tracer

__all__ = [
    "FLAGS",
    "FlagKind",
    "FlagPoints",
    "Host",
    "IAdapter",
    "Instrument",
    "ModelPoints",
    "Place",
    "Shards",
    "SitePoints",
    "Source",
    "StatisticsLogger",
    "StepHandle",
    "Tracer",
    "TracerError",
    "parse_reduction",
]
