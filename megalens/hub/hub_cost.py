"""What the hub's own process costs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from ..protocol.messages_generated import Overhead

__all__ = ["HubCost"]

_SECONDS = 30.0
_LEAST_SECONDS = 2.0


class HubCost:
    """CPU time of this process in the last half minute, as per cent of a processor core: of training steps that follow each other that is per cent of step time.

    Parameters
    ----------
    recorder_seconds : callable
        Gives the CPU time of the thread that records, in seconds; it is told apart from the rest.
    """

    def __init__(self, recorder_seconds: Callable[[], float]) -> None:
        self._recorder_seconds = recorder_seconds
        self._samples: deque[tuple[float, float, float]] = deque()

    def sample(self) -> None:
        """Read the clocks; a few times a second."""
        now = time.monotonic()
        self._samples.append((now, time.process_time(), self._recorder_seconds()))
        while now - self._samples[0][0] > _SECONDS:
            self._samples.popleft()

    def added_to(self, overhead: Overhead) -> Overhead:
        """Return what producers measured with what this process costs; as it is where too little is known yet."""
        if not self._samples:
            return overhead
        (began, cpu, recorded), (now, all_cpu, all_recorded) = self._samples[0], self._samples[-1]
        if now - began < _LEAST_SECONDS:
            return overhead
        recorder = 100 * (all_recorded - recorded) / (now - began)
        hub = max(0.0, 100 * (all_cpu - cpu) / (now - began) - recorder)
        more = hub + recorder
        shifted: Overhead = {
            **overhead,
            "percent": overhead["percent"] + more,
            "low": overhead["low"] + more,
            "high": overhead["high"] + more,
            "hub": hub,
            "recorder": recorder,
        }
        return shifted
