"""Steps where the peer sends none: which forward pass an update belongs to, made out from the order of what comes.

One process (``T1``, ``T2``) sends a forward pass in order: layer by layer, in each layer flag by flag. An update that does not
come after the one before it in that order begins the next pass. ``T1`` sends a recomputed pass again during backward: what is equal in every
value to the last of the same layer and flag, and does not come after the one before it, is such a repeat and is left out.

An inference hub ends every pass with the candidates for the next token, so its passes are told by them.

Several processes (``3606``: the stages of a pipeline) send in an order of their own each. There a layer counts its own passes: a flag that does
not come after the one before it of the same layer begins that layer's next pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .dialect import Dialect

__all__ = ["PassCounter"]

_ENDED = (1 << 40, 0)
_Values = np.ndarray[Any, np.dtype[np.float32]]


class PassCounter:
    """Numbers forward passes from 0.

    Parameters
    ----------
    dialect : Dialect
        In which order its hub sends.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._at: dict[int, int] = {}
        self._order: dict[int, int] = {}
        self._last: tuple[int, int] = (-1, -1)
        self._values: dict[tuple[int, str], _Values] = {}
        self._repeating = False
        self._floor = 0
        self.behind = 0
        self.newest = -1

    def place(self, layer: int, flag: str, values: _Values) -> int | None:
        """Return the pass of an update, or None for the repeat of one."""
        order = self._dialect.order.index(flag) if flag in self._dialect.order else len(self._dialect.order)
        if self._dialect.by_layer:
            return self._place_in_layer(layer, order)
        if self._dialect.recomputes and self._repeats(layer, flag, order, values):
            return None
        ended = self._last == _ENDED if self._dialect.generates else (layer, order) <= self._last
        if self.newest < 0 or ended:
            self.newest = max(self.newest + 1, self._floor)
        self._last = (layer, order)
        return self.newest

    def interrupt(self) -> None:
        """Begin a new pass with what comes next: updates may have been lost before it."""
        self._floor = self.newest + 1
        self._last = _ENDED
        self._values.clear()
        self._order.clear()

    def end_pass(self) -> int:
        """Return the pass that the peer says is whole now."""
        if self.newest < 0 or self._last == _ENDED:
            self.newest = max(self.newest + 1, self._floor)
        self._last = _ENDED
        return self.newest

    def _place_in_layer(self, layer: int, order: int) -> int:
        if layer not in self._order or order <= self._order[layer]:
            self._at[layer] = max(self._at.get(layer, -1) + 1, self._floor)
            # A layer is sent before the one after it. One that is behind lost an update inside the peer, or its process sends late.
            if self._at[layer] < self._at.get(layer + 1, -1):
                self.behind += 1
        self._order[layer] = order
        self.newest = max(self.newest, self._at[layer])
        return self._at[layer]

    def _repeats(self, layer: int, flag: str, order: int, values: _Values) -> bool:
        known = self._values.get((layer, flag))
        same = known is not None and known.shape == values.shape and known.tobytes() == values.tobytes()
        self._values[layer, flag] = values
        # Within a recomputed block the order rises again, so what follows a repeat and is equal too is one.
        self._repeating = same and (self._repeating or (layer, order) <= self._last)
        return self._repeating
