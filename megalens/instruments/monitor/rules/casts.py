"""Rules over what casts to fewer bits lose: values beyond the largest number, and values that become 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..rule import Finding, Rule, number, percent
from ..table import StepTable

Flags = NDArray[np.bool_]

_STEPS = "In how many measured steps in a row it must be so."


@dataclass(frozen=True)
class Saturation(Rule):
    """A cast to fewer bits meets many values beyond the format's largest number, step after step: they are
    cut off or become infinite. The scale is too large for the tensor, or too old.
    """

    name = "saturation"
    title = "Saturation of casts"
    share: float = number("Share", "Of the values, which may lie beyond the largest number.", 0, 1, 0.01)
    steps: float = number("Steps", _STEPS, 1, 1000, 4)

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors of which a part lies beyond the format's largest number for some steps."""
        rows = now.layout.rows("overflow")
        if not len(rows):
            return
        found = now.rows[rows, 1] > self.share
        # A loss scale is searched for by trying: what is infinite then is meant to be.
        scale = float(now.loss_scale[rows[0]])
        if scale != (now.remember("scale of casts", scale) or [1.0])[-1]:
            found &= ~now.layout.matching(r"/dgrad:\w+$")[rows]
        yield from _lasting(now, "overflow", rows, found, self, "lie beyond the largest number of")


@dataclass(frozen=True)
class Underflow(Rule):
    """A cast to fewer bits makes many values zero, step after step: what is small in the tensor is lost. The
    range of the format, or of a block, is too narrow for it, or a loss scale is too small.
    """

    name = "underflow"
    title = "Underflow of casts"
    share: float = number("Share", "Of the values, which may become zero.", 0, 1, 0.25)
    four_bits: float = number("Share of four bits", "The same of formats of four bits.", 0, 1, 0.5)
    steps: float = number("Steps", _STEPS, 1, 1000, 4)

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors of which a part becomes zero for some steps."""
        rows = now.layout.rows("underflow")
        if len(rows):
            few = now.layout.matching(r"fp4\w*$")[rows]
            found = now.rows[rows, 1] > np.where(few, self.four_bits, self.share)
            yield from _lasting(now, "underflow", rows, found, self, "become zero in")


def _lasting(
    now: StepTable, stat: str, rows: NDArray[np.intp], found: Flags, rule: Saturation | Underflow, words: str
) -> Iterator[Finding]:
    """Give the rows that are found in as many steps in a row as the rule asks for."""
    series = now.layout.series[rows[found]].tolist()
    before = (now.memory.get(("casts", stat)) or [{}])[-1]
    now.remember(("casts", stat), {each: before.get(each, 0) + 1 for each in series})
    lasting = [before.get(each, 0) + 1 >= rule.steps for each in series]
    of = rows[found][lasting]
    if not len(of):
        return
    formats = [now.layout.names[at].rpartition(":")[2] for at in of.tolist()]
    for form in dict.fromkeys(formats):
        here = of[[each == form for each in formats]]
        limit = rule.four_bits if isinstance(rule, Underflow) and "fp4" in form else rule.share
        yield Finding(here, stat, now.rows[here, 1], limit, partial(_says, words, form, rule.steps))


def _says(words: str, form: str, steps: float, value: float, limit: float) -> str:
    share = f"{percent(value, 1)} of the values {words} {form}"
    return f"{share}, for {steps:.0f} measured steps; {percent(limit)} may."
