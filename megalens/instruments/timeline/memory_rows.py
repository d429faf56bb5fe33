"""Rows of the stream ``memory``: the readings at the ends of a step's spans, and what lies between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .noted_span import Span

if TYPE_CHECKING:
    # Whoever reads these rows has no torch.
    from ...tracer.memory import MemoryReader, MemorySizes

STREAM = "memory"
NUMBERS = ("step", "chunk", "micro_batch", "start", "end", "before", "allocated", "reserved", "peak", "limit")
TEXTS = ("phase", "name", "device", "limit_of")
PHASES = ("step", "forward", "backward", "wgrad", "optimizer")

Readings: TypeAlias = Mapping[int, "MemorySizes"]
"""By the time that stands for each, as the ends of spans do."""


def memory_rows(
    step: int,
    spans: Sequence[Span],
    placed: Sequence[Span],
    readings: Readings,
    reader: MemoryReader,
    summed: bool,
    codes: dict[str, int],
) -> list[tuple[int, ...]]:
    """Return the memory of each phase, layer and operation of a step, with indices of texts in ``codes``,
    which grows.

    ``placed`` are the same spans with their times as they are shown; with ``summed`` all of a kind are one
    row.
    """
    kept = [
        (own, shown)
        for own, shown in zip(spans, placed, strict=True)
        if own.kind in PHASES and own.start in readings and own.end in readings
    ]
    if not kept:
        return []
    times = np.array(sorted(readings))
    sizes = np.array([readings[time] for time in times.tolist()])
    first, last = (np.searchsorted(times, [getattr(own, end) for own, _ in kept]) for end in ("start", "end"))
    highest = np.maximum(sizes[first, 0], sizes[last, 0])
    # Each reading's peak is since the one before.
    pairs = np.stack((first + 1, last + 1), axis=1).ravel()
    between = np.maximum.reduceat(np.append(sizes[:, 2], 0), pairs)[::2]
    highest = np.where(last > first, np.maximum(highest, between), highest)
    rows = [
        (
            *(shown.chunk, shown.micro_batch, shown.start, shown.end, int(sizes[begin, 0])),
            *(int(sizes[end, 0]), int(sizes[end, 1]), int(peak), shown.kind, shown.name),
        )
        for (_, shown), begin, end, peak in zip(kept, first, last, highest, strict=True)
    ]
    device, limit_of = (codes.setdefault(text, len(codes)) for text in (reader.device, reader.limit_of))
    return [
        (
            *(step, *numbers, reader.limit),
            *(codes.setdefault(text, len(codes)) for text in (phase, name)),
            *(device, limit_of),
        )
        for *numbers, phase, name in (_summed(rows) if summed else rows)
    ]


_Row: TypeAlias = tuple[int, int, int, int, int, int, int, int, str, str]


def _summed(rows: Sequence[_Row]) -> list[_Row]:
    """Return one row for each phase, from the beginning of its first to the end of its last."""
    found: list[_Row] = []
    # The phase, then the beginning.
    ordered = sorted(rows, key=lambda row: (row[8], row[2]))
    for phase, several in groupby(ordered, key=lambda row: row[8]):
        mine = list(several)
        last = max(mine, key=lambda row: row[3])
        found.append(
            (
                -1,
                -1,
                mine[0][2],
                last[3],
                mine[0][4],
                last[5],
                last[6],
                max(row[7] for row in mine),
                phase,
                "",
            )
        )
    return found
