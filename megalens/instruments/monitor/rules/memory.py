"""Rules over the memory that each rank has in use between two steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....protocol import MEMORY, MEMORY_LIMIT, MEMORY_NOW, MEMORY_PEAK
from ..rule import Finding, Rule, number, percent, says
from ..table import StepTable


@dataclass(frozen=True)
class Leak(Rule):
    """Between two steps there is ever more memory in use, at a steady pace: something keeps what a step made,
    such as a list of losses with their graphs, and the training ends when the memory does.
    """

    name = "leak"
    title = "Memory leak"
    steps: float = number("Steps", "For how many steps it must have grown.", 20, 1e6, 500)
    growth: float = number(
        "Growth", "And by which share of what was in use when it began.", 0.0001, 100, 0.01
    )

    def find(self, now: StepTable) -> Iterator[Finding]:
        for row in _rows(now, MEMORY_NOW):
            key = ("leak", int(now.layout.ranks[row]))
            earlier = now.memory.get(key, [])
            floors = self.note(earlier[-1] if earlier else None, now.step, float(now.rows[row, 1]))
            now.remember(key, floors)
            if not self.grows(floors):
                continue
            first, last = float(floors[1, 1]), float(floors[-2, 1])
            pace = (last - first) / (self.steps * (1 - 1 / _BLOCKS))
            words = (
                f"Between steps {_words(last)} are in use, {_words(first)} about {self.steps:.0f} steps ago: "
                f"{_words(pace)} more with each step{_until(now, row, last, pace)}."
            )
            yield Finding(np.array([row]), "growth", last, first, partial(says, words))

    def note(self, before: Any, step: int, value: float) -> Any:
        """Return the smallest size of each block of steps, ``[number, bytes]``: one that does not count, the
        last whole ones, and the one that is under way.
        """
        block = step // max(1, int(self.steps / _BLOCKS))
        if before is None or not before[-1, 0] <= block <= before[-1, 0] + 1:
            # The first block is that of the warm-up; so is one after a gap.
            return np.array([[block, value]])
        if before[-1, 0] == block:
            return np.vstack((before[:-1], [block, min(value, before[-1, 1])]))
        return np.vstack((before[-_BLOCKS - 1 :], [block, value]))

    def grows(self, floors: Any) -> bool:
        """Return whether the whole blocks of :meth:`note` grow steadily."""
        floors = floors[1:-1, 1]
        if len(floors) < _BLOCKS:
            return False
        grown = np.diff(floors)
        if grown.min() <= 0 or floors[-1] - floors[0] < max(self.growth * floors[0], _LEAST_BYTES):
            return False
        steady = grown.mean() * math.sqrt(len(grown)) >= _SURE * grown.std(ddof=1)
        # A cache that fills grows ever more slowly.
        half = len(grown) // 2
        return bool(steady and grown[-half:].sum() >= _LASTING * grown[:half].sum())


@dataclass(frozen=True)
class MemoryLimit(Rule):
    """Nearly all of the memory was in use: of the CUDA device, or of a CPU's control group or machine. A step
    that takes a little more, such as one with longer texts, ends the training.
    """

    name = "memory_limit"
    title = "Memory nearly full"
    share: float = number("Share", "The share of the memory that counts as nearly all.", 0.1, 1, 0.95)

    def find(self, now: StepTable) -> Iterator[Finding]:
        for row in _rows(now, MEMORY_PEAK):
            limit, of = _limit(now, row)
            peak = float(now.rows[row, 1])
            if limit > 0 and peak > self.share * limit:
                words = f"{_words(peak)} were in use, {percent(peak / limit)} of the {_words(limit)} of {of}."
                yield Finding(np.array([row]), "peak", peak, limit, partial(says, words))


def _rows(now: StepTable, name: str) -> list[int]:
    layout = now.layout
    found: list[int] = layout.once(
        ("memory", name), lambda: [at for at in layout.rows(MEMORY).tolist() if layout.names[at] == name]
    )
    return found


def _limit(now: StepTable, row: int) -> tuple[float, str]:
    """Return the limit of a row's rank and what has it; 0 where that is not known."""
    layout = now.layout
    for at in layout.rows(MEMORY).tolist():
        if layout.ranks[at] == layout.ranks[row] and layout.names[at].startswith(MEMORY_LIMIT):
            return float(now.rows[at, 1]), _LIMITS.get(layout.names[at][len(MEMORY_LIMIT) :], "the machine")
    return 0.0, ""


def _until(now: StepTable, row: int, last: float, pace: float) -> str:
    limit, of = _limit(now, row)
    steps = (limit - last) / pace
    return f". At this pace the {_words(limit)} of {of} last for {steps:,.0f} steps" if steps > 0 else ""


def _words(size: float) -> str:
    """Return a number of bytes as people read it."""
    power = min(4, max(0, int(math.log10(max(size, 1)) // 3)))
    return f"{size / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


_LIMITS = {"device": "the device", "cgroup": "its control group", "machine": "the machine"}
# Blocks whose smallest sizes are compared, and the least growth over all.
_BLOCKS, _LEAST_BYTES = 10, 8 << 20
# Standard errors by which the growth of a block exceeds 0, and how much of the growth of the first half the
# second half of the blocks has at least.
_SURE, _LASTING = 10.0, 0.85
