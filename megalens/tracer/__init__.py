"""The training side: hooks, compression on the device, and a producer thread that no step waits for."""

from .coordinates import RankCoordinates
from .errors import TracerError
from .instrument import Host, Instrument
from .moments.logger import StatisticsLogger
from .own_hooks import Observed
from .points import FLAGS, FlagKind, FlagPoints, IAdapter, ModelPoints, Shards, SitePoints, Source
from .steps import StepHandle
from .tensors.reductions import parse_reduction
from .tracer import Tracer

Place = RankCoordinates
"""The name under which scripts give a process's coordinates: ``megalens.trace(model, place=Place(…))``."""

__all__ = [
    "FLAGS",
    "FlagKind",
    "FlagPoints",
    "Host",
    "IAdapter",
    "Instrument",
    "ModelPoints",
    "Observed",
    "Place",
    "RankCoordinates",
    "Shards",
    "SitePoints",
    "Source",
    "StatisticsLogger",
    "StepHandle",
    "Tracer",
    "TracerError",
    "parse_reduction",
]
