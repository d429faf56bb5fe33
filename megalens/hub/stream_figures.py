"""What has come of each stream: the ``streams`` member of ``status``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..protocol import CheckedBody
from ..protocol.messages_generated import StreamStatus, StreamStatusNonfinite
from .live_frame import LiveFrame

__all__ = ["StreamFigures"]

_MEAN_STEPS = 32
_MOST_COUNT = 2**53
_MOST_TEXT = 500


@dataclass
class StreamFigures:
    """Rows, bytes, steps and non-finite values of one stream, counted as its policy says.

    Attributes
    ----------
    nonfinite : dict or None
        How many there were, and the columns that the policy names of the first row with some.
    """

    rows: int = 0
    bytes: int = 0
    first_step: int | None = None
    last_step: int | None = None
    nonfinite: StreamStatusNonfinite | None = None

    def __post_init__(self) -> None:
        self._step_bytes: dict[int, float] = {}

    def add(self, frame: LiveFrame, body: CheckedBody) -> None:
        """Count in a frame."""
        self.rows += frame.rows
        self.bytes += frame.size
        if frame.step >= 0:
            first = max(frame.first_step, 0)
            self.first_step = first if self.first_step is None else min(self.first_step, first)
            self.last_step = frame.step if self.last_step is None else max(self.last_step, frame.step)
        steps = [frame.step]
        if frame.first_step < frame.step:
            steps = np.unique(body.numbers("step")).tolist()
        for step in steps:
            self._step_bytes[step] = self._step_bytes.get(step, 0) + frame.size / len(steps)
        while len(self._step_bytes) > _MEAN_STEPS:
            del self._step_bytes[min(self._step_bytes)]
        self._count_nonfinite(body)

    def begin(self) -> None:
        """Forget the sizes of steps: the training begins, or goes on from an earlier step."""
        self._step_bytes.clear()

    def bytes_per_step(self) -> float | None:
        """Return the mean size of all frames of one of the last steps; None before the first."""
        # The newest step may lack processes that are still at work on it.
        sizes = [size for step, size in self._step_bytes.items() if step != max(self._step_bytes)]
        sizes = sizes or list(self._step_bytes.values())
        return sum(sizes) / len(sizes) if sizes else None

    def told(self, dropped: int = 0) -> StreamStatus:
        """Return the stream's entry of ``status`` for a viewer to which so many of its rows were not sent."""
        told: StreamStatus = {
            "rows": self.rows,
            "bytes": self.bytes,
            "first_step": self.first_step,
            "last_step": self.last_step,
        }
        if self.nonfinite is not None:
            told["nonfinite"] = self.nonfinite
        if dropped:
            told["dropped"] = dropped
        return told

    def _count_nonfinite(self, body: CheckedBody) -> None:
        policy = body.declared.policy
        # Nearly every frame has none, and its numbers need not even be read.
        found = [body.numbers(name) for name in policy.counts if not body.all_zero(name)]
        found += [~np.isfinite(body.numbers(name)) for name in policy.values]
        if not found:
            return
        counts = np.sum(found, axis=0, dtype=float)
        # Of sums that another program made it is not always known how many there are, only that there are some.
        counts[np.isnan(counts)] = 1.0
        if not (counts > 0).any():
            return
        if self.nonfinite is None:
            row = int((counts > 0).argmax())
            values = {name: body.table().column(name)[row].as_py() for name in policy.first}
            first = {n: v[:_MOST_TEXT] if isinstance(v, str) else v for n, v in values.items()}
            self.nonfinite = {"count": 0, "first": first}
        self.nonfinite["count"] = min(
            self.nonfinite["count"] + int(min(counts[counts > 0].sum(), _MOST_COUNT)), _MOST_COUNT
        )
