"""Host memory for what a step traces, used again step after step."""

from __future__ import annotations

import math
import queue

import numpy as np

__all__ = ["Stage", "StagePool"]

_KEPT = 3
_KEPT_BYTES = 8 << 20
"""Of small stages more are kept: several steps may be sent together."""


class Stage:
    """Float32 memory that the rows of one batch lie in, one after another.

    Fresh memory in every step would cost a page fault each 4 kB, and would change how the allocator lays out the training's own tensors.

    Parameters
    ----------
    size : int
        How many numbers it holds.
    """

    __slots__ = ("_address", "_array", "_used", "wanted")

    def __init__(self, size: int) -> None:
        self._array = np.empty(size, np.float32)
        self._address: int = self._array.ctypes.data
        self._used = 0
        self.wanted = 0
        """How many numbers were asked for since the last :meth:`clear`."""

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return len(self._array)

    def room(self, shape: tuple[int, ...]) -> tuple[np.ndarray, int]:
        """Return an uninitialised float32 array and its address; it has memory of its own where this stage is full."""
        count = math.prod(shape)
        begin, end = self._used, self._used + count
        self.wanted += count
        if end > len(self._array):
            own = np.empty(shape, np.float32)
            return own, own.ctypes.data
        self._used = end
        return self._array[begin:end].reshape(shape), self._address + 4 * begin

    def whole(self) -> np.ndarray | None:
        """Return everything that was given out, as one flat array; None where some of it did not fit."""
        return self._array[: self._used] if self._used == self.wanted else None

    def clear(self) -> None:
        """Forget what was given out."""
        self._used = self.wanted = 0


class StagePool:
    """Stages on their way between the training thread, which takes them, and the producer thread, which gives them back."""

    def __init__(self) -> None:
        self._free: queue.SimpleQueue[Stage] = queue.SimpleQueue()
        # Written by the thread that gives back, read by the other; an older figure only costs a larger or smaller stage.
        self._wanted = 0

    def take(self) -> Stage:
        """Return a stage that nobody uses, as large as the last batches asked for."""
        wanted = self._wanted
        while True:
            try:
                stage = self._free.get_nowait()
            except queue.Empty:
                return Stage(wanted)
            if wanted <= stage.size <= 2 * wanted:
                return stage

    def give(self, stage: Stage) -> None:
        """Take a stage back; nothing may look at its memory any more."""
        if stage.wanted:
            self._wanted = stage.wanted
        stage.clear()
        if self._free.qsize() < max(_KEPT, _KEPT_BYTES // max(1, 4 * stage.size)):
            self._free.put(stage)
