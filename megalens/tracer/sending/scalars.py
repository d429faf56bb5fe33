"""Numbers on their way to the hub."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from ..tensors.batch import ScalarRow, scalars_table

__all__ = ["ScalarQueue"]

_SECONDS = 0.2
_KEPT = 10_000


class ScalarQueue:
    """Keeps numbers until they are sent: with tensors, or a few times a second, because every message wakes the hub and each viewer.

    Parameters
    ----------
    warn : callable
        Takes a sentence for the user.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._rows: deque[tuple[int, float, str, float, str]] = deque(maxlen=_KEPT)
        self._sent_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def due(self) -> bool:
        """Whether the last ones were sent long enough ago."""
        return time.monotonic() - self._sent_at >= _SECONDS

    def keep(self, row: ScalarRow) -> None:
        """Take a number as it was logged; a tensor is read now."""
        try:
            value = float(row.value)
        except (TypeError, ValueError, RuntimeError):
            self._warn(f"{row.name} was logged with something that is not one number; it is left out.")
            return
        self._rows.append((row.step, row.time, row.name, value, row.unit))

    def add(self, step: int, name: str, value: float, unit: str) -> None:
        """Take a number of the tracer's own."""
        self._rows.append((step, time.time(), name, value, unit))

    def send(self, rank: int, send: Callable[[pa.RecordBatch, int], int]) -> None:
        """Send what waits; it is kept when ``send`` says that nothing went."""
        self._sent_at = time.monotonic()
        rows = list(self._rows)
        if rows and send(scalars_table(rank, rows), max(row[0] for row in rows)):
            self._rows.clear()
