"""Rules over the values of one tensor as such: not finite, soon infinite, or zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....protocol import MEMORY, RANK_SCALAR
from ..rule import Finding, Rule, Severity, number, says
from ..table import StepTable, TableLayout


@dataclass(frozen=True)
class NotFinite(Rule):
    """Values are NaN or infinite: whatever is computed from them is lost, and the cause lies in the first
    tensor that has them.
    """

    name = "nonfinite"
    title = "Not finite"
    severity = "critical"

    def find(self, now: StepTable) -> Iterator[Finding]:
        # A search of the loss scale produces infinite gradients: the step is skipped.
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
    """The largest value comes close to the largest that the number format holds, and still grows: soon it is
    infinite.
    """

    name = "overflow"
    title = "Overflow ahead"
    bits: float = number("Bits", "How many doublings may be left before it counts as close.", 0.1, 16, 2)
    steps: float = number(
        "Steps",
        "In how many steps at the present pace it may be infinite before it counts.",
        1,
        10000,
        20,
    )

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors whose largest exponent rises towards the limit of their format."""
        if np.isnan(now.layout.limits).all():
            return
        past = now.past("peak")
        left = now.layout.limits - now.peak
        grows = (past.off > _GROWS_BITS) & (past.seen >= 4) & (now.loss_scale == 1)
        # The level is a median of eight values, so about four steps old: a quarter of the distance is a
        # step's pace.
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
    """A tensor that had values has only zeros, or a parameter that has a gradient is not changed by the
    update: this part of the model learns nothing.
    """

    name = "dead"
    title = "Dead"
    steps: float = number("Steps", "How often in a row a parameter may stay as it is.", 1, 1000, 3)

    def find(self, now: StepTable) -> Iterator[Finding]:
        past = now.past("size")
        zero = (now.size == -np.inf) & ~now.nonfinite & (now.column("count") > 0)
        # Experts may have no token, and a scalar may be 0.
        idle = now.layout.matching(r"expert") | now.layout.of("scalar", RANK_SCALAR, MEMORY, "communication")
        rows = np.flatnonzero(zero & ~idle & (past.seen > 0))
        if len(rows):
            yield Finding(
                rows,
                "rms",
                0.0,
                2.0 ** past.level[rows],
                lambda _, expected: f"All values are 0; they usually are about {expected:.3g}.",
            )
        yield from self._without_gradient(now)
        rows = np.flatnonzero(now.still >= self.steps)
        if len(rows):
            yield Finding(
                rows,
                "update",
                0.0,
                np.nan,
                lambda *_: "It has a gradient, and the update leaves every value as it was.",
            )

    def _without_gradient(self, now: StepTable) -> Iterator[Finding]:
        """Find parameters that had a gradient at every step, and have none for some steps now."""
        layout, last = now.layout, int(self.steps)
        for rank in layout.ranks_of("grad"):
            here = layout.once(
                ("with gradient", rank),
                partial(_with_gradient, layout, rank),
            )
            steps = [*now.remember(("with gradient", rank), here), here]
            known = steps[-last - _ALWAYS : -last]
            if len(known) < _ALWAYS or (known[-1] is here and all(each is here for each in steps[-last:])):
                continue
            gone = frozenset.intersection(*known).difference(*steps[-last:])
            rows = layout.rows("param")
            rows = rows[[layout.names[at] in gone and layout.ranks[at] == rank for at in rows.tolist()]]
            rows = rows[~layout.matching(r"expert")[rows]]
            if len(rows):
                # What is cut off takes with it whatever comes before it.
                cut = rows[np.argmax(layout.place[rows])]
                others = f", and so are {len(rows) - 1} tensors before it" if len(rows) > 1 else ""
                words = (
                    f"It has had no gradient for {last} steps, and had one at every step before: it is "
                    f"frozen, or cut off from the loss{others}."
                )
                yield Finding(np.array([cut]), "gradient", 0.0, np.nan, partial(says, words))


def _with_gradient(layout: TableLayout, rank: int) -> frozenset[str]:
    rows = layout.rows("grad")
    return frozenset(layout.names[at] for at in rows[layout.ranks[rows] == rank].tolist())


# Steps in a row in which what has lost its gradient had one.
_ALWAYS = 16
# An exponent that rises by fewer doublings above its level does not count as growing.
_GROWS_BITS = 0.05
