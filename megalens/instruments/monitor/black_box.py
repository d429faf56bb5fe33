"""The last steps at full rate: what a recording that is sparse lacks when something goes wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from ...protocol import MOMENT_COLUMNS, MOMENT_STATS, Readings, StepReadings, merge_moments, stream_schema

__all__ = ["BlackBox"]

_ROW_BYTES = 8 * len(MOMENT_COLUMNS) + 64


class BlackBox:
    """Keeps the last steps, in bounded memory.

    Parameters
    ----------
    steps : int
        How many at most.
    limit : int
        Bytes at most: of more, the oldest steps are given up.

    Attributes
    ----------
    recorded : callable
        Takes a step and gives the statistics of it that are sent anyway.
    nbytes : int
        What it holds.
    """

    def __init__(self, steps: int, limit: int) -> None:
        self.limit, self.nbytes = limit, 0
        self.most = steps
        self.recorded: Callable[[int], Collection[str]] = lambda step: ()
        self._steps: deque[StepReadings] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: StepReadings) -> None:
        """Keep a step."""
        self._steps.append(step)
        self.nbytes += _size(step)
        while self._steps and (len(self._steps) > self.most or self.nbytes > self.limit):
            self.nbytes -= _size(self._steps.popleft())

    def open(self, rank: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Give the rows of ``moments`` that were not sent, step by step, and forget them.

        Parameters
        ----------
        rank : int
            Who sends them.
        """
        while self._steps:
            step = self._steps.popleft()
            self.nbytes -= _size(step)
            known = self.recorded(step.step)
            left = [
                each
                for each in step.readings
                if each.counted and each.stat in MOMENT_STATS and each.stat not in known
            ]
            if left:
                yield step.step, _columns(step, left, rank)


def _size(step: StepReadings) -> int:
    return sum(_ROW_BYTES * len(each.names) for each in step.readings)


def _columns(step: StepReadings, readings: list[Readings], rank: int) -> dict[str, Any]:
    """Return the columns of the stream, parts of one tensor merged over the processes."""
    places: dict[tuple[str, int, str], int] = {}
    of = [
        places.setdefault((each.stat, each.micro_batch, name), len(places))
        for each in readings
        for name in each.names
    ]
    rows = np.concatenate([each.rows for each in readings])
    given = {name: rows[:, at] for at, name in enumerate(MOMENT_COLUMNS)}
    n = len(places)
    merged = merge_moments(given, np.array(of, np.int64), n)
    first: list[Any] = [None] * n
    at = 0
    for each in readings:
        for number, name in enumerate(each.names):
            if first[of[at]] is None:
                first[of[at]] = each, number, name
            at += 1
    everything: dict[str, Any] = {
        **{name: merged[name] for name in MOMENT_COLUMNS},
        "step": np.full(n, step.step, np.int64),
        "samples": np.full(n, step.samples, np.int64),
        "stat": [each.stat for each, _, _ in first],
        "name": [name for _, _, name in first],
        "rank": np.full(n, rank, np.int32),
        "stage": np.array([each.stage for each, _, _ in first], np.int32),
        "micro_batch": np.array([each.micro_batch for each, _, _ in first], np.int32),
        "rounding": np.zeros(n),
        "gradient_stage": [each.gradient_stage for each, _, _ in first],
        "loss_scale": np.array([each.loss_scale for each, _, _ in first], np.float64),
        "shape": [each.shapes[number] if each.shapes else "" for each, number, _ in first],
        "dtype": [each.dtypes[number] if each.dtypes else "" for each, number, _ in first],
    }
    return {name: everything[name] for name in stream_schema("moments").names}
