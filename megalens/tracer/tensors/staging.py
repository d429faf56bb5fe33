"""Host memory for the rows of a step, reused step after step."""

from __future__ import annotations

import math
import queue
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

_KEPT = 3
_KEPT_BYTES = 32 << 20
"""More of the small stages stay in the pool: several steps may be sent together."""


def slices_of(shapes: Sequence[tuple[int, ...]]) -> list[slice]:
    """Return the slices of arrays of some shapes that lie one after another."""
    ends = list(accumulate(map(math.prod, shapes)))
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


class Stage:
    """Float32 memory that the rows of one batch lie in, one after another.

    Fresh memory in every step would cost a page fault each 4 kB, and would change how the allocator lays out
    the training's own tensors.
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
        return len(self._array)

    def allocate(self, count: int) -> tuple[np.ndarray, int]:
        """Return an uninitialised float32 array and its address; outside of this stage where that is full."""
        begin, end = self._used, self._used + count
        self.wanted += count
        if end > len(self._array):
            own = np.empty(count, np.float32)
            return own, own.ctypes.data
        self._used = end
        return self._array[begin:end], self._address + 4 * begin

    def copy(self, values: np.ndarray) -> np.ndarray:
        copied = self.allocate(values.size)[0].reshape(values.shape)
        copied[...] = values
        return copied

    def filled(self) -> np.ndarray | None:
        """Return everything that was allocated as one flat array; None where some of it did not fit."""
        return self._array[: self._used] if self._used == self.wanted else None

    def clear(self) -> None:
        self._used = self.wanted = 0

    def give_back(self) -> None:
        """Return it to its pool; nothing may look at its memory any more."""
        if self._pool is not None:
            self._pool.give(self)


class StagePool:
    """Stages that the training thread takes and the producer thread gives back."""

    def __init__(self) -> None:
        self._free: queue.SimpleQueue[Stage] = queue.SimpleQueue()
        # Written by the thread that gives back, read by the other; an older figure only costs a larger or
        # smaller stage.
        self._wanted = 0

    def take(self) -> Stage:
        """Return an unused stage, as large as the last batches asked for."""
        wanted = self._wanted
        while True:
            try:
                stage = self._free.get_nowait()
            except queue.Empty:
                return Stage(wanted, self)
            if wanted <= stage.size <= 2 * wanted:
                return stage

    def give(self, stage: Stage) -> None:
        if stage.wanted:
            self._wanted = stage.wanted
        stage.clear()
        if self._free.qsize() < max(_KEPT, _KEPT_BYTES // max(1, 4 * stage.size)):
            self._free.put(stage)
