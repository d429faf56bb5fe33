"""Rules about values as such: what is no number, what soon will be none, what does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....protocol import RANK_SCALAR
from ....protocol.kinds import number
from ..alarm import Severity
from ..rule import Finding, Rule
from ..table import StepTable

__all__ = ["Dead", "NotFinite", "Overflow"]


@dataclass(frozen=True)
class NotFinite(Rule):
    """Values are NaN or infinite: whatever is computed from them is lost, and the cause lies in the first tensor that has them."""

    name = "nonfinite"
    title = "Not finite"
    severity = "critical"
    properties: ClassVar = {}

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors with NaN, and with infinity."""
        # Under a loss scale that is being searched, infinite gradients are how it is found: the step is left out.
        searched = now.layout.of("dgrad", "residual_dgrad", "grad_unreduced", "grad_accumulated") & (
            now.loss_scale != 1
        )
        for column, word in (("nan_count", "NaN"), ("inf_count", "infinite")):
            bad = now.column(column) > 0
            if not bad.any():
                continue
            severities: tuple[tuple[Any, Severity | None], ...] = (
                (bad & ~searched, None),
                (bad & searched, "note"),
            )
            for which, severity in severities:
                rows = np.flatnonzero(which)
                if len(rows):
                    yield Finding(rows, column, now.column(column)[rows], 0.0, _Counted(word), severity)


@dataclass(frozen=True)
class _Counted:
    word: str

    def __call__(self, value: float, _: float) -> str:
        return f"{value:,.0f} {'value is' if value == 1 else 'values are'} {self.word}."


@dataclass(frozen=True)
class Overflow(Rule):
    """The largest value comes close to the largest that the number format holds, and still grows: soon it is infinite."""

    name = "overflow"
    title = "Overflow ahead"
    properties: ClassVar = {
        "bits": number("Bits", "How many doublings may be left before it counts as close.", 0.1, 16, 2),
        "steps": number(
            "Steps",
            "In how many steps at the present pace it may be infinite before it counts.",
            1,
            10000,
            20,
        ),
    }

    bits: float = 2.0
    steps: float = 20.0

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors whose largest exponent rises towards the limit of their format."""
        if np.isnan(now.layout.limits).all():
            return
        past = now.past("peak")
        left = now.layout.limits - now.peak
        grows = (past.off > 0.05) & (past.seen >= 4) & (now.loss_scale == 1)
        # The level is the median of the last eight: about four steps ago.
        soon = (left < past.off / 4 * self.steps) & (left < 4 * self.bits)
        rows = np.flatnonzero(grows & ((left < self.bits) | soon))
        if len(rows):
            yield Finding(
                rows,
                "max_exponent",
                now.peak[rows],
                now.layout.limits[rows],
                lambda value, limit: (
                    f"The largest value is 2^{value:.1f} and grows; its format ends at 2^{limit:.0f}."
                ),
            )


@dataclass(frozen=True)
class Dead(Rule):
    """A tensor that had values has only zeros, or a parameter that has a gradient is not changed by the update: this part of the model learns nothing."""

    name = "dead"
    title = "Dead"
    properties: ClassVar = {
        "steps": number("Steps", "How often in a row a parameter may stay as it is.", 1, 1000, 3),
    }

    steps: float = 3.0

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors of zeros and parameters that do not move."""
        past = now.past("size")
        zero = (now.size == -np.inf) & ~now.nonfinite & (now.column("count") > 0)
        # Experts may have no token, and a scalar may be 0.
        idle = now.layout.matching(r"expert") | now.layout.of("scalar", RANK_SCALAR, "communication")
        rows = np.flatnonzero(zero & ~idle & (past.seen > 0))
        if len(rows):
            yield Finding(
                rows,
                "rms",
                0.0,
                2.0 ** past.level[rows],
                lambda _, expected: f"All values are 0; they usually are about {expected:.3g}.",
            )
        rows = np.flatnonzero(now.still >= self.steps)
        if len(rows):
            yield Finding(
                rows,
                "update",
                0.0,
                np.nan,
                lambda *_: "It has a gradient, and the update leaves every value as it was.",
            )
