"""Host memory for what a step traces, used again step after step."""

from __future__ import annotations

import math
import queue
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

__all__ = ["Stage", "StagePool", "slices_of"]

_KEPT = 3
_KEPT_BYTES = 32 << 20
"""Of small stages more are kept: several steps may be sent together."""


def slices_of(shapes: Sequence[tuple[int, ...]]) -> list[slice]:
    """Return where arrays of some shapes lie, one after another."""
    ends = list(accumulate(map(math.prod, shapes)))
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


class Stage:
    """Float32 memory that the rows of one batch lie in, one after another.

    Fresh memory in every step would cost a page fault each 4 kB, and would change how the allocator lays out
    the training's own tensors.

    Parameters
    ----------
    size : int
        How many numbers it holds.
    pool : StagePool, optional
        Where it goes back to.
    """

    __slots__ = ("_address", "_array", "_pool", "_used", "wanted")

    def __init__(self, size: int, pool: StagePool | None = None) -> None:
        self._pool = pool
        self._array = np.empty(size, np.float32)
        self._address: int = self._array.ctypes.data
        self._used = 0
        self.wanted = 0
        """How many numbers were asked for since the last :meth:`clear`."""

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return len(self._array)

    def allocate(self, count: int) -> tuple[np.ndarray, int]:
        """Return an uninitialised float32 array of so many numbers and its address; it has memory of its own
        where this stage is full.
        """
        begin, end = self._used, self._used + count
        self.wanted += count
        if end > len(self._array):
            own = np.empty(count, np.float32)
            return own, own.ctypes.data
        self._used = end
        return self._array[begin:end], self._address + 4 * begin

    def copy(self, values: np.ndarray) -> np.ndarray:
        """Return a copy of some values, in memory of this stage."""
        copied = self.allocate(values.size)[0].reshape(values.shape)
        copied[...] = values
        return copied

    def whole(self) -> np.ndarray | None:
        """Return everything that was given out, as one flat array; None where some of it did not fit."""
        return self._array[: self._used] if self._used == self.wanted else None

    def clear(self) -> None:
        """Forget what was given out."""
        self._used = self.wanted = 0

    def give_back(self) -> None:
        """Let its pool give it out again; nothing may look at its memory any more."""
        if self._pool is not None:
            self._pool.give(self)


class StagePool:
    """Stages on their way between the training thread, which takes them, and the producer thread, which gives
    them back.
    """

    def __init__(self) -> None:
        self._free: queue.SimpleQueue[Stage] = queue.SimpleQueue()
        # Written by the thread that gives back, read by the other; an older figure only costs a larger or
        # smaller stage.
        self._wanted = 0

    def take(self) -> Stage:
        """Return a stage that nobody uses, as large as the last batches asked for."""
        wanted = self._wanted
        while True:
            try:
                stage = self._free.get_nowait()
            except queue.Empty:
                return Stage(wanted, self)
            if wanted <= stage.size <= 2 * wanted:
                return stage

    def give(self, stage: Stage) -> None:
        """Take a stage back; nothing may look at its memory any more."""
        if stage.wanted:
            self._wanted = stage.wanted
        stage.clear()
        if self._free.qsize() < max(_KEPT, _KEPT_BYTES // max(1, 4 * stage.size)):
            self._free.put(stage)
