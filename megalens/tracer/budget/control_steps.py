"""Measures the cost of tracing: random control steps, equal on all ranks, in which nothing is traced."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

SHARE = 1 / 16
"""Share of the steps that are left untraced to compare with."""

_BLOCKS = 256
_Z95 = 1.959964

_SKIPPED_STEPS = 2
_STEPS, _CYCLES = 16, 3
_MOST_CYCLES = 64


# What tracing costs at least, by the training thread's own clock: known long before a comparison of steps
# says anything.
class OwnCost:
    """Adds up what a traced cycle took, and how much of it the training thread has spent in the tracer.

    That much is lost in any case: the other costs come on top.
    """

    def __init__(self, cycle: int) -> None:
        self._cycle = cycle
        # What is traced for the first time allocates and compiles.
        self._skip = _SKIPPED_STEPS
        self._at = -1
        self._seen = self._wall = self._spent = 0
        self._shares: deque[float] = deque(maxlen=_MOST_CYCLES)

    def add(self, step: int, wall_ns: int, spent_ns: int) -> None:
        """Count one step that was not left out."""
        if self._skip:
            self._skip -= 1
            return
        at = step // self._cycle
        if at != self._at:
            self._at = at
            self._seen = self._wall = self._spent = 0
        self._seen += 1
        self._wall += wall_ns
        self._spent += spent_ns
        if self._seen == self._cycle and self._wall > self._spent:
            # In steps a cycle, as the comparison has it: of those that would be without tracing.
            self._shares.append(self._cycle * self._spent / (self._wall - self._spent))

    def shift(self, z: float) -> Shift | None:
        """Return how many steps longer a cycle is for it; None before 16 steps.

        It is the median, with the interval of the sign test at ``z`` standard deviations, which no stall
        moves.
        """
        n = len(self._shares)
        if n < _CYCLES or n * self._cycle < _STEPS:
            return None
        ordered = sorted(self._shares)
        outside = math.floor((n - z * math.sqrt(n)) / 2)
        low, high = (ordered[outside - 1], ordered[-outside]) if outside > 0 else (ordered[0], math.inf)
        return Shift(ordered[n // 2], low, high)


@dataclass(frozen=True)
class Shift:
    """A relative difference: 0.01 is one per cent longer."""

    value: float
    low: float
    high: float


class ShiftEstimate:
    """Hodges-Lehmann estimate over blocks, with the interval of the rank test that it belongs to.

    Of each block every traced time is compared with the control's, as a ratio. The estimate is the median of
    all these ratios (Hodges and Lehmann, "Estimates of location based on rank tests", Ann. Math. Statist. 34,
    1963), and the interval holds every shift that the rank-sum test, stratified by block, does not reject
    (van Elteren, "On the combination of independent two-sample tests of Wilcoxon", Bull. ISI 37, 1960;
    Lehmann, *Nonparametrics*, 1975, sections 2.3 and 3.3). The index of the control within its block is
    random, and that alone makes the test valid: no assumption is made of how step times are distributed, and
    a slow drift, an outlier or a stall moves neither the estimate nor the interval by more than one rank.

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
        """Compare the traced times of a block with its control's, in one unit.

        The excess of a ratio over 1 is multiplied by ``weight``.
        """
        if control > 0 and traced:
            self._blocks.append((np.asarray(traced, np.float64) / control - 1.0) * weight)
            self._steps.append(len(traced) + 1)
            self._sorted = None

    def clear(self) -> None:
        self._blocks.clear()
        self._steps.clear()
        self._sorted = None

    def shift(self, z: float = _Z95) -> Shift | None:
        """Return the estimate with the interval of ``z`` standard deviations of the rank sum.

        None without a block.
        """
        if not self._blocks:
            return None
        if self._sorted is None:
            self._sorted = np.sort(np.concatenate(self._blocks))
        ordered = self._sorted
        # Under the null a control's rank among m traced ones is uniform on 0..m, with variance m (m + 2) /
        # 12.
        variance = sum(m * (m + 2) for m in map(len, self._blocks)) / 12
        outside = math.floor(len(ordered) / 2 - z * math.sqrt(variance))
        value = float(np.median(ordered))
        if outside < 1:
            return Shift(value, -math.inf, math.inf)
        return Shift(value, float(ordered[outside - 1]), float(ordered[-outside]))


_MASK = (1 << 64) - 1
_FEWEST = 8


class Design:
    """How steps are dealt out: a randomised block design.

    Steps are counted in cycles, from one traced step to the next: one step where every step is traced.
    Consecutive cycles make blocks, and one cycle of each block, at an index that is drawn for each block,
    is the control. So whatever else changes from step to step (clocks, sequence lengths, a neighbour on the
    machine) falls on both kinds alike, and the comparison is made within a block only (Box, Hunter and
    Hunter, *Statistics for Experimenters*, 2nd ed. 2005, chapter 4: "block what you can, randomize what you
    cannot").

    Where every step is traced, two controls follow each other and the second one counts: the tracer's own
    thread finishes a step's rows during the next step, and the first would still pay for them.

    Parameters
    ----------
    cycle : int
        Steps from one traced step to the next.
    share : float
        Share of control steps.

    Attributes
    ----------
    run : int
        Controls in a row.
    block : int
        Cycles of a block.
    """

    def __init__(self, cycle: int = 1, share: float = SHARE) -> None:
        self.cycle = cycle
        self.run = 2 if cycle == 1 else 1
        self.block = max(_FEWEST, round(self.run / share))
        self._known = (-1, -1, 0)

    def position(self, seed: int, block: int) -> int:
        """Return the index in its block of the control that counts, from ``run - 1`` to the last."""
        known = self._known
        if known[0] != block or known[1] != seed:
            position = self.run - 1 + _mix(seed, block) % (self.block - self.run + 1)
            self._known = known = (block, seed, position)
        return known[2]

    def is_control(self, seed: int, step: int) -> bool:
        block, position = divmod(step // self.cycle, self.block)
        return 0 <= self.position(seed, block) - position < self.run


def _mix(seed: int, number: int) -> int:
    """Return 64 well mixed bits: SplitMix64 (Steele, Lea and Flood, "Fast splittable …", OOPSLA 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + (number + 1) * 0xD1342543DE82EF95) & _MASK
    for _ in range(2):
        z = (z + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
    return z
