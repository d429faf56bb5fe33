"""How the tracing goes: what ``status`` tells the viewers."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from .overhead import Overhead
from .tensors.batch import Row

__all__ = ["Health"]

log = logging.getLogger("megalens")

_IDLE_SECONDS = 3.0
_SIZES = 20


class Health:
    """Counts and sentences about one producer.

    Attributes
    ----------
    step : int
        The newest step.
    probes : tuple or None
        Fired, expected, names of the missing.
    given_up_rows, lost_rows, unjoined_rows : int
        Rows that were too many to wait, rows that no hub took, and rows of which a piece did not come. Each is written by one thread only, so that neither needs a lock.
    """

    def __init__(self) -> None:
        self.step = 0
        self.probes: tuple[int, int, list[str]] | None = None
        self.overhead = Overhead()
        self.given_up_rows = 0
        self.lost_rows = 0
        self.unjoined_rows = 0
        self._sizes: dict[int, int] = {}
        self._warnings: deque[str] = deque(maxlen=20)
        self._nonfinite = 0
        self._first_nonfinite: dict[str, Any] | None = None
        self._step_at = time.monotonic()

    @property
    def dropped(self) -> int:
        """Rows that never reached the hub."""
        return self.given_up_rows + self.lost_rows + self.unjoined_rows

    def warn(self, text: str) -> None:
        """Say a sentence to the user once: in the log, and in ``status`` for the viewers."""
        text = text[:500]
        if text not in self._warnings:
            self._warnings.append(text)
            log.warning("%s", text)

    def step_ended(self) -> None:
        """Note that the training is alive."""
        self._step_at = time.monotonic()

    def sent(self, step: int, nbytes: int) -> None:
        """Note the size of a frame of a step's tensors."""
        self._sizes[step] = self._sizes.get(step, 0) + nbytes
        if len(self._sizes) > _SIZES:
            del self._sizes[next(iter(self._sizes))]

    def count_nonfinite(self, step: int, rows: Sequence[Row], counts: np.ndarray) -> None:
        """Add the non-finite values of ``rows``, of which ``counts`` is int64 ``[rows, 2]``."""
        total = int(counts.sum())
        if not total:
            return
        if self._first_nonfinite is None:
            meta = rows[int(counts.sum(axis=1).nonzero()[0][0])].meta
            self._first_nonfinite = {"step": step, "layer": meta.layer, "flag": meta.flag}
        self._nonfinite += total

    def status(self) -> dict[str, Any]:
        """Return the ``status`` message as of now."""
        recent = time.monotonic() - self._step_at < _IDLE_SECONDS
        message: dict[str, Any] = {
            "type": "status",
            "state": "training" if self.step and recent else "idle",
            "step": self.step,
            "time": time.time(),
            "nonfinite": {"count": self._nonfinite},
            "dropped": {"producer": self.dropped, "viewer": 0, "recorder": 0},
            "warnings": list(self._warnings),
        }
        if self._first_nonfinite is not None:
            message["nonfinite"]["first"] = self._first_nonfinite
        if self.probes is not None:
            fired, expected, missing = self.probes
            message["probes"] = {"fired": fired, "expected": expected, "missing": missing}
        overhead = self.overhead.to_status()
        if overhead is not None:
            message["overhead"] = overhead
        # Read by the training thread while the producer thread adds: a copy of its own.
        sizes = list(self._sizes.values())
        if sizes:
            message["bytes_per_step"] = sum(sizes) / len(sizes)
        return message
