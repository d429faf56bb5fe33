"""What the tracer costs, measured by itself."""

from __future__ import annotations

import math
from collections import deque

from ..protocol.messages_generated import Overhead

__all__ = ["OverheadMeter"]

_STEPS = 100


class OverheadMeter:
    """Cost of the tracer over the recent steps, as per cent of step time.

    The cost of a step is the time that the training thread spent inside the tracer, plus all CPU time of the producer thread: the
    two run in one process, so this is what the step would gain at most. Not in it are the few microseconds that torch itself takes to call each
    hook. What the hub's process costs is added by the hub.
    """

    def __init__(self) -> None:
        self._percents: deque[tuple[float, float]] = deque(maxlen=_STEPS)

    def add(self, training_ns: int, producer_ns: int, wall_ns: int) -> None:
        """Count one step of ``wall_ns``."""
        if wall_ns > 0:
            self._percents.append((100.0 * training_ns / wall_ns, 100.0 * producer_ns / wall_ns))

    @property
    def percent(self) -> float | None:
        """Mean over the recent steps; None before the second one."""
        recent = list(self._percents)
        return sum(map(sum, recent)) / len(recent) if len(recent) > 1 else None

    def to_status(self) -> Overhead | None:
        """Return the ``Overhead`` object of ``status``, with a 95 % interval of the mean; None before the second step."""
        # Read by the training thread while the producer thread adds: a copy of its own.
        recent = list(self._percents)
        n = len(recent)
        if n < 2:
            return None
        training, producer = (sum(part) / n for part in zip(*recent, strict=True))
        mean = training + producer
        half = 1.96 * math.sqrt(sum((sum(parts) - mean) ** 2 for parts in recent) / (n - 1) / n)
        return {
            "percent": mean,
            "low": max(0.0, mean - half),
            "high": mean + half,
            "training": training,
            "producer": producer,
        }
