"""Steps where the peer sends none: the forward pass of an update, inferred from the order of one process.

``T1`` and ``T2`` send a forward pass in order: layer by layer, in each layer flag by flag. An update that
does not come after the one before it in that order begins the next pass. ``T1`` sends a recomputed pass again
during backward, block by block from the last: what is equal in every value to the last of the same layer and
flag, and does not come after the one before it, is such a repeat and is left out.

An inference hub ends every pass with the candidates for the next token, which delimit its passes.

In ``3606`` several processes send, the stages of a pipeline: each sends its layers in order, at its own pace.
A flag that does not come after the one before it of the same layer begins that layer's next pass. Such a hub
sends to whoever asks, from then on, in mid-pass too: after a connection a stage is counted from the first
pass that it sends whole, once the stage before it is. Then the number may be too high by the passes that were
under way between the two; that shows, at the latest at the end of the training step, by a pass that begins
before the layer before has begun it, and is set right.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from ...protocol import EMBEDDING
from .dialect import Dialect

_ENDED = (1 << 40, 0)
_Values = np.ndarray[Any, np.dtype[np.float32]]


class PassCounter:
    """Numbers the forward passes of one process from 0."""

    unnumbered = ("repeats that a recomputed pass sent", False)
    """Why an update has no number, and whether a row is lost by it."""
    behind = ahead = 0

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._order = dialect.order
        self._last: tuple[int, int] = (-1, -1)
        self._values: dict[tuple[int, str], _Values] = {}
        # The last repeat of this pass, where its blocks of recomputed layers began, whether that is proved,
        # and where they began in others.
        self._repeat: tuple[int, int] | None = None
        self._begun: list[int] = []
        self._proved = False
        self._blocks: set[int] = set()
        self.newest = -1

    def pass_of(self, layer: int, flag: str, values: _Values) -> int | None:
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
        """Return the pass that the peer says is complete now."""
        if self.newest < 0 or self._last == _ENDED:
            self.newest += 1
        self._last = _ENDED
        return self.newest

    def all_past(self, passes: int, layers: int) -> bool:
        """Whether nothing of the first ``passes`` can come any more, once something of a later one has."""
        return True

    def _repeats(self, at: tuple[int, int], flag: str, values: _Values) -> bool:
        layer = at[0]
        known = self._values.get((layer, flag))
        self._values[layer, flag] = values
        same = known is not None and known.shape == values.shape and known.tobytes() == values.tobytes()
        if same and at > (self._repeat or self._last):
            # In its order: within a recomputed block the order rises, too.
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
        """Whether a recomputed block would begin at a layer now, where its values prove nothing.

        Blocks come from the last to the first, and a pass begins at the lowest layer.
        """
        before = self._begun[-1] if self._begun else math.inf
        if self._blocks:
            return layer == max((block for block in self._blocks if block < before), default=None)
        lowest = min(layer for layer, _ in self._values)
        return layer < before and (layer > lowest or bool(self._begun))


def _proves(values: _Values) -> bool:
    """Whether equal values were computed from the same input.

    After a divergence all are NaN, of a part that is still zero all are 0.
    """
    finite = values[np.isfinite(values)]
    return bool(finite.size) and finite.min() < finite.max()


class StageCounter:
    """Numbers the forward passes of each layer from 0, for the ``flags`` that were asked for."""

    unnumbered = ("updates of passes that had begun before the connection", True)
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

    def pass_of(self, layer: int, flag: str, values: Any) -> int | None:
        """Return the pass of an update, or None for the rest of a pass begun before the connection."""
        order = self._order.index(flag)
        last = self._flag.get(layer)
        self._flag[layer] = order
        if last is None or order <= last:
            self._begin(layer, flag, again=last is not None)
        if layer not in self._pass:
            self._in_mid_pass = True
        return None if layer in self._partial else self._pass.get(layer)

    def interrupt(self) -> None:
        """Count on with the next complete passes: updates may have been lost before them."""
        for known in (self._pass, self._base, self._flag, self._partial):
            known.clear()
        self._in_mid_pass = True

    def all_past(self, passes: int, layers: int) -> bool:
        """Whether every layer is beyond the first ``passes``.

        A layer that sent nothing is waited for as long as a stage can be behind: one pass a stage.
        """
        waiting = [layer for layer in range(layers) if self._pass.get(layer, -1) < passes]
        silent = self.newest >= passes + layers
        return all(silent and layer not in self._flag for layer in waiting)

    def _begin(self, layer: int, flag: str, *, again: bool) -> None:
        self._partial.discard(layer)
        if layer in self._pass:
            number = self._pass[layer] + 1
            if self._in_mid_pass and number > self._pass.get(layer - 1, number):
                # What was counted as this layer's pass was the one before: this is the one that the layer
                # before is in.
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
        # A layer is sent before the one after it. One that is behind lost an update inside the peer, or its
        # process sends late.
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
        # The first that sends begins the next pass. Where others were counted already, it had begun theirs
        # before.
        self._in_mid_pass |= bool(self._pass)
        return 1 + (self._pass[min(self._pass)] if self._pass else self.newest)
