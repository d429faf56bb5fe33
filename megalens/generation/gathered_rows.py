"""Rows of several passes in one frame: every frame wakes the hub and each viewer, and passes are short."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["GatheredRows"]

_SECONDS = 0.03
"""Less than an eye notices."""


class GatheredRows:
    """Gathers rows by stream and sends them a few times in each tenth of a second.

    Parameters
    ----------
    send : callable
        Takes a stream, columns by name and the newest step among them.
    """

    def __init__(self, send: Callable[[str, Mapping[str, Any], int], None]) -> None:
        self._send = send
        self._waiting: dict[str, list[tuple[Mapping[str, Any], int]]] = {}
        self._sent = 0.0

    def add(self, stream: str, columns: Mapping[str, Any], step: int) -> None:
        """Take rows of a stream, all with the same columns."""
        self._waiting.setdefault(stream, []).append((columns, step))

    def pass_over(self) -> None:
        """Send what waits, where the last time is long enough ago."""
        if time.monotonic() - self._sent >= _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        waiting, self._waiting = self._waiting, {}
        for stream, several in waiting.items():
            first, step = several[0][0], several[-1][1]
            rows = (
                first
                if len(several) == 1
                else {name: _joined([columns[name] for columns, _ in several]) for name in first}
            )
            self._send(stream, rows, step)
        self._sent = time.monotonic()


def _joined(columns: list[Any]) -> Any:
    if isinstance(columns[0], pa.Array):
        return pa.concat_arrays(columns)
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return [value for column in columns for value in column]
