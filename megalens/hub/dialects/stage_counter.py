"""Steps where the peer sends none, and several processes send: the stages of a pipeline, in ``3606``.

Each stage sends its layers in order, at its own pace. A flag that does not come after the one before it of the same layer begins that layer's next
pass. Such a hub sends to whoever asks, from then on, in mid-pass too: after a connection a stage is counted from the first pass
that it sends whole, once the stage before it is. Then the number may be too high by the passes that were under way between the two; that shows, at the
latest at the end of the training step, by a pass that begins before the layer before has begun it, and is set right.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...protocol import EMBEDDING
from .dialect import Dialect

__all__ = ["StageCounter"]


class StageCounter:
    """Numbers the forward passes of each layer from 0.

    Parameters
    ----------
    dialect : Dialect
        In which order each of its processes sends.
    flags : collection of str
        What was asked for.
    """

    unplaced = ("updates of passes that had begun before the connection", True)
    """Why an update has no number, and whether a row is lost by it."""

    def __init__(self, dialect: Dialect, flags: Collection[str]) -> None:
        self._order = dialect.order
        # A pass of the first layer begins so.
        alone = [flag for flag, facts in dialect.flags.items() if facts.always]
        self._first = next((flag for flag in dialect.order if flag in flags and flag not in alone), "")
        # By layer: the pass that it is in, the first one that was counted, and the flag that came last.
        self._pass: dict[int, int] = {}
        self._base: dict[int, int] = {}
        self._flag: dict[int, int] = {}
        # Layers whose pass is left out, and whether the connection was made when a pass had begun.
        self._partial: set[int] = set()
        self._in_mid_pass = False
        self.behind = 0
        self.ahead = 0
        self.newest = -1

    def place(self, layer: int, flag: str, values: Any) -> int | None:
        """Return the pass of an update, or None for what is left of a pass that began before the connection."""
        order = self._order.index(flag)
        last = self._flag.get(layer)
        self._flag[layer] = order
        if last is None or order <= last:
            self._begin(layer, flag, again=last is not None)
        if layer not in self._pass:
            self._in_mid_pass = True
        return None if layer in self._partial else self._pass.get(layer)

    def interrupt(self) -> None:
        """Count on with the next whole passes: updates may have been lost before them."""
        for known in (self._pass, self._base, self._flag, self._partial):
            known.clear()
        self._in_mid_pass = True

    def all_past(self, passes: int, layers: int) -> bool:
        """Whether every layer has gone beyond the first ``passes`` passes. One of which nothing came is waited for as long as a stage can be behind: one pass a stage."""
        waiting = [layer for layer in range(layers) if self._pass.get(layer, -1) < passes]
        silent = self.newest >= passes + layers
        return all(silent and layer not in self._flag for layer in waiting)

    def _begin(self, layer: int, flag: str, *, again: bool) -> None:
        self._partial.discard(layer)
        if layer in self._pass:
            number = self._pass[layer] + 1
            if self._in_mid_pass and number > self._pass.get(layer - 1, number):
                # What was counted as this layer's pass was the one before: this is the one that the layer before is in.
                self._partial.add(layer)
                self.ahead += 1
                return
        else:
            joined = self._joined(layer, flag, again)
            if joined is None:
                return
            number = self._base[layer] = joined
        self._pass[layer] = number
        self.newest = max(self.newest, number)
        # A layer is sent before the one after it. One that is behind lost an update inside the peer, or its process sends late.
        self.behind += number <= self._pass.get(layer + 1, -1)

    def _joined(self, layer: int, flag: str, again: bool) -> int | None:
        """Return the number of the first pass of a layer that is counted, or None when this is none."""
        if layer - 1 in self._flag:
            return self._base.get(layer - 1)
        # The layer before it sends nothing, or its stage is in mid-pass.
        if not again and not (layer == EMBEDDING or (layer == EMBEDDING + 1 and flag == self._first)):
            return None
        before = max((other for other in self._flag if other < layer), default=None)
        if before is not None:
            return self._pass.get(before)
        # The first that sends begins the next pass. Where others were counted already, it had begun theirs before.
        self._in_mid_pass |= bool(self._pass)
        return 1 + (self._pass[min(self._pass)] if self._pass else self.newest)
