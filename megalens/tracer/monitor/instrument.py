"""The instrument of the stream ``alarms``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...protocol import StepReadings
from ..instrument import Instrument

if TYPE_CHECKING:
    from ..host import Host

__all__ = ["MonitorInstrument"]

STREAM = "alarms"


class MonitorInstrument(Instrument):
    """Judges steps in the producer thread of rank 0, and sends the alarms.

    Parameters
    ----------
    judge : callable
        Takes a step and gives its alarms as the columns of the stream.
    """

    name = "monitor"

    def __init__(self, judge: Callable[[StepReadings], Mapping[str, Sequence[Any]]]) -> None:
        self._judge = judge
        self._host: Host | None = None
        self.judged = 0
        """Steps that were judged."""
        self.alarms = 0
        """Alarms that they gave."""

    def attach(self, host: Host) -> None:
        """Begin to judge."""
        self._host = host

    def take(self, step: StepReadings) -> None:
        """Judge a step; in the producer thread."""
        rows = self._judge(step)
        self.judged += 1
        count = len(rows["step"])
        if count and self._host is not None:
            self.alarms += count
            self._host.send(STREAM, rows, step.step)
