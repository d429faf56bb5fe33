"""Steps where the peer sends none: which forward pass an update belongs to, made out from the order of what one process sends.

``T1`` and ``T2`` send a forward pass in order: layer by layer, in each layer flag by flag. An update that does not come after the one before it
in that order begins the next pass. ``T1`` sends a recomputed pass again during backward, block by block from the last: what is equal in every
value to the last of the same layer and flag, and does not come after the one before it, is such a repeat and is left out.

An inference hub ends every pass with the candidates for the next token, so its passes are told by them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .dialect import Dialect

__all__ = ["PassCounter"]

_ENDED = (1 << 40, 0)
_Values = np.ndarray[Any, np.dtype[np.float32]]


class PassCounter:
    """Numbers the forward passes of one process from 0.

    Parameters
    ----------
    dialect : Dialect
        In which order its hub sends.
    """

    unplaced = ("repeats that a recomputed pass sent", False)
    """Why an update has no number, and whether a row is lost by it."""
    behind = ahead = 0

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._order = dialect.order
        self._last: tuple[int, int] = (-1, -1)
        self._values: dict[tuple[int, str], _Values] = {}
        # The last repeat of this pass, where its blocks of recomputed layers began, whether that is proved, and where they began in others.
        self._repeat: tuple[int, int] | None = None
        self._begun: list[int] = []
        self._proved = False
        self._blocks: set[int] = set()
        self.newest = -1

    def place(self, layer: int, flag: str, values: _Values) -> int | None:
        """Return the pass of an update, or None for the repeat of one."""
        at = (layer, self._order.index(flag))
        if self._dialect.recomputes and self._repeats(at, flag, values):
            return None
        ended = self._last == _ENDED if self._dialect.generates else at <= self._last
        if self.newest < 0 or ended:
            self.newest += 1
        self._last = at
        return self.newest

    def interrupt(self) -> None:
        """Begin a new pass with what comes next: updates may have been lost before it."""
        self._last = _ENDED

    def end_pass(self) -> int:
        """Return the pass that the peer says is whole now."""
        if self.newest < 0 or self._last == _ENDED:
            self.newest += 1
        self._last = _ENDED
        return self.newest

    def all_past(self, passes: int, layers: int) -> bool:
        """Whether nothing of the first ``passes`` passes can come any more, once something of a later one has."""
        return True

    def _repeats(self, at: tuple[int, int], flag: str, values: _Values) -> bool:
        layer = at[0]
        known = self._values.get((layer, flag))
        self._values[layer, flag] = values
        same = known is not None and known.shape == values.shape and known.tobytes() == values.tobytes()
        if same and at > (self._repeat or self._last):
            # In its place: within a recomputed block the order rises, too.
            if self._repeat is None:
                return False
        elif same and ((proves := _proves(values)) or self._block_follows(layer)):
            self._proved |= proves
            self._begun.append(layer)
        else:
            self._blocks.update(self._begun if self._proved else ())
            self._repeat, self._begun, self._proved = None, [], False
            return False
        self._repeat = at
        return True

    def _block_follows(self, layer: int) -> bool:
        """Whether a recomputed block would begin at a layer now, where its values prove nothing: blocks come from the last to the first, and a pass begins at the lowest layer."""
        before = self._begun[-1] if self._begun else math.inf
        if self._blocks:
            return layer == max((block for block in self._blocks if block < before), default=None)
        lowest = min(layer for layer, _ in self._values)
        return layer < before and (layer > lowest or bool(self._begun))


def _proves(values: _Values) -> bool:
    """Whether equal values were computed from the same input. Of a run that diverged all are NaN, of a part that is still zero all are 0."""
    finite = values[np.isfinite(values)]
    return bool(finite.size) and finite.min() < finite.max()
