"""Which steps are control steps: a random few in which nothing is traced, the same ones on every rank."""

from __future__ import annotations

__all__ = ["SHARE", "Design", "control_step"]

SHARE = 1 / 16
"""Share of the steps that are left untraced to compare with."""

_MASK = (1 << 64) - 1
_FEWEST = 8


class Design:
    """How steps are dealt out: a randomised block design.

    Steps are counted in cycles, from one traced step to the next: one step where every step is traced. Consecutive cycles make blocks,
    and one cycle of each block, at a place that is drawn anew for each block, is the control. So whatever else changes from step to step
    (clocks, sequence lengths, a neighbour on the machine) falls on both kinds alike, and the comparison is made within a block only
    (Box, Hunter and Hunter, *Statistics for Experimenters*, 2nd ed. 2005, chapter 4: "block what you can, randomize what you cannot").

    Where every step is traced, two controls follow each other and the second one counts: the tracer's own thread
    finishes a step's rows during the next step, and the first would still pay for them.

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

    def place(self, seed: int, block: int) -> int:
        """Return the position in its block of the control that counts, from ``run - 1`` to the last."""
        known = self._known
        if known[0] != block or known[1] != seed:
            place = self.run - 1 + _mix(seed, block) % (self.block - self.run + 1)
            self._known = known = (block, seed, place)
        return known[2]

    def is_control(self, seed: int, step: int) -> bool:
        """Return whether nothing is traced in this step."""
        block, position = divmod(step // self.cycle, self.block)
        return 0 <= self.place(seed, block) - position < self.run


def control_step(seed: int, step: int, share: float = SHARE, cycle: int = 1) -> bool:
    """Return whether a step is a control step. Every rank finds the same without asking another.

    Parameters
    ----------
    seed : int
        Shared by all ranks, such as a number made from the run's id.
    step : int
        The training step.
    share : float
        Share of control steps, above 0 and at most 1/4.
    cycle : int
        Steps from one traced step to the next: the largest ``every`` in force.
    """
    return Design(cycle, share).is_control(seed, step)


def _mix(seed: int, number: int) -> int:
    """Return 64 well mixed bits: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + (number + 1) * 0xD1342543DE82EF95) & _MASK
    for _ in range(2):
        z = (z + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
    return z
