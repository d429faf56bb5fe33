"""How much longer traced steps take than control steps, whatever the times look like otherwise."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

__all__ = ["Shift", "ShiftEstimate"]

_BLOCKS = 256
_Z95 = 1.959964


@dataclass(frozen=True)
class Shift:
    """A relative difference: 0.01 is one per cent longer."""

    value: float
    low: float
    high: float


class ShiftEstimate:
    """Hodges-Lehmann estimate over blocks, with the interval of the rank test that it belongs to.

    Of each block every traced time is compared with the control's, as a ratio. The estimate is the median of all these ratios (Hodges and
    Lehmann, "Estimates of location based on rank tests", Ann. Math. Statist. 34, 1963), and the interval holds every
    shift that the rank-sum test, stratified by block, does not reject (van Elteren, "On the combination of independent two-sample tests of
    Wilcoxon", Bull. ISI 37, 1960; Lehmann, *Nonparametrics*, 1975, sections 2.3 and 3.3). The place of the control within its block is
    random, and that alone makes the test valid: no assumption is made of how step times are distributed, and a slow drift, an outlier or a
    stall moves neither the estimate nor the interval by more than one rank.

    The newest 256 blocks count.
    """

    def __init__(self) -> None:
        self._blocks: deque[np.ndarray] = deque(maxlen=_BLOCKS)
        self._steps: deque[int] = deque(maxlen=_BLOCKS)
        self._sorted: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def steps(self) -> int:
        """Times compared, controls among them."""
        return sum(self._steps)

    def add(self, traced: list[float], control: float, weight: float = 1.0) -> None:
        """Compare one block.

        Parameters
        ----------
        traced : list of float
            Times of the traced ones, any unit.
        control : float
            Time of the control, in that unit.
        weight : float
            What a ratio's excess over 1 is multiplied with.
        """
        if control > 0 and traced:
            self._blocks.append((np.asarray(traced, np.float64) / control - 1.0) * weight)
            self._steps.append(len(traced) + 1)
            self._sorted = None

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
        self._steps.clear()
        self._sorted = None

    def shift(self, z: float = _Z95) -> Shift | None:
        """Return the estimate with the interval of ``z`` standard deviations of the rank sum (95 % by default); None without a block."""
        if not self._blocks:
            return None
        if self._sorted is None:
            self._sorted = np.sort(np.concatenate(self._blocks))
        ordered = self._sorted
        # Under the null a control's rank among m traced ones is uniform on 0..m, with variance m (m + 2) / 12.
        variance = sum(m * (m + 2) for m in map(len, self._blocks)) / 12
        outside = math.floor(len(ordered) / 2 - z * math.sqrt(variance))
        value = float(np.median(ordered))
        if outside < 1:
            return Shift(value, -math.inf, math.inf)
        return Shift(value, float(ordered[outside - 1]), float(ordered[-outside]))
