"""How the tracing goes: what ``status`` reports to viewers."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Collection

from ..protocol import Losses, Pace, shown_text
from ..protocol.messages_generated import Overhead, Status
from .errors import describe_error

log = logging.getLogger("megalens")

_IDLE_SECONDS = 3.0
_SIZES = 20
_LINES_AT_ONCE, _LINES_A_SECOND = 50, 0.5

_STEPS = 100


class OverheadMeter:
    """Cost of the tracer over the last 100 steps, as per cent of step time.

    The cost of a step is the time that the training thread spent inside the tracer, plus all CPU time of the
    producer thread: the two run in one process, so this is what the step would gain at most. Not in it are
    the few microseconds that torch itself takes to call each hook. What the hub's process costs is added by
    the hub.
    """

    def __init__(self) -> None:
        self._percents: deque[tuple[float, float]] = deque(maxlen=_STEPS)

    def add(self, training_ns: int, producer_ns: int, wall_ns: int) -> None:
        if wall_ns > 0:
            self._percents.append((100.0 * training_ns / wall_ns, 100.0 * producer_ns / wall_ns))

    @property
    def percent(self) -> float | None:
        """Mean over the recent steps; None before the second one."""
        recent = list(self._percents)
        return sum(map(sum, recent)) / len(recent) if len(recent) > 1 else None

    def to_status(self) -> Overhead | None:
        """Return the ``Overhead`` object with a 95 % interval of the mean; None before the second step."""
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


class ProducerHealth:
    """Counts and sentences about one producer; ``failures`` are caught errors of the tracer's own."""

    def __init__(self) -> None:
        self.step = self.failures = 0
        self.overhead = OverheadMeter()
        self._losses = Losses()
        self._sizes: dict[int, float] = {}
        self._warnings: deque[str] = deque(maxlen=20)
        self._lines = Pace(_LINES_AT_ONCE, _LINES_A_SECOND)
        self._step_at = time.monotonic()

    @property
    def dropped(self) -> int:
        """Rows that never reached the hub."""
        return self._losses.rows

    def lose(
        self,
        rows: int,
        why: str,
        what: str,
        step: int | None = None,
        layers: Collection[int] = (),
        size: str = "",
    ) -> None:
        """Count rows that are given up, and name the first of their kind; see :meth:`Losses.add`."""
        sentence = self._losses.add(rows, why, what, self.step if step is None else step, layers, size)
        if sentence is not None:
            self.warn(sentence)

    def sum_up(self) -> None:
        """Name all that was given up, at the end."""
        for text in self._losses.totals():
            self.warn(text)

    def warn(self, text: str) -> None:
        """Say a sentence once: in the log, and in ``status`` for viewers."""
        text = shown_text(text, 500)
        if text not in self._warnings:
            self._warnings.append(text)
            # Others can cause as many as they like; in the log of the training they are few.
            if self._lines.take():
                log.warning("%s", text)

    def failed(self, what: str, error: Exception) -> None:
        """Count and report an error that nobody foresaw."""
        self.failures += 1
        self.warn(f"{what} met an error of the tracer's own. Tracing goes on. {describe_error(error)}")
        log.debug("%s", what, exc_info=error)

    def step_ended(self, training_ns: int, producer_ns: int, wall_ns: int) -> None:
        """Add what a step of ``wall_ns`` has cost in the training thread and in the producer thread."""
        self._step_at = time.monotonic()
        self.overhead.add(training_ns, producer_ns, wall_ns)

    def sent(self, steps: Collection[int], nbytes: int) -> None:
        """Note the size of a frame, shared evenly by the steps in it."""
        for step in steps:
            self._sizes[step] = self._sizes.get(step, 0) + nbytes / len(steps)
            if len(self._sizes) > _SIZES:
                del self._sizes[next(iter(self._sizes))]

    def status(self) -> Status:
        recent = time.monotonic() - self._step_at < _IDLE_SECONDS
        message: Status = {
            "type": "status",
            "state": "training" if self.step and recent else "idle",
            "step": self.step,
            "time": time.time(),
            "dropped": {"producer": self.dropped, "viewer": 0, "recorder": 0},
            "warnings": list(self._warnings),
        }
        if self.failures:
            counted = f"{self.failures} errors of the tracer's own were caught so far."
            message["warnings"] = [*message["warnings"][-19:], counted]
        overhead = self.overhead.to_status()
        if overhead is not None:
            message["overhead"] = overhead
        # Read by the training thread while the producer thread adds: a copy of its own.
        sizes = list(self._sizes.values())
        if sizes:
            message["bytes_per_step"] = sum(sizes) / len(sizes)
        return message
