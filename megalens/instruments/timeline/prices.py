"""What culprits cost: the step replayed without each, without those that are slow together, without all.

Ranks that can be slow together: those of a node, of a stage, of a group that communicates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from ...protocol import is_whole
from .culprits import Culprit, Verdict, interval_text, percent, significant
from .replay import StepChanges, StepReplay
from .spans import COMPUTING, Floats, Spans, Work

_MOST = 0.75
"""Share of a unit's ranks that are slow where the unit is said to be."""
_MOST_UNITS, _MOST_NAMED = 4_096, 4


@dataclass(frozen=True)
class Unit:
    """Ranks with a name; of several units that explain the same, the first is meant."""

    name: str
    ranks: frozenset[int]


def units_of(spans: Spans) -> list[Unit]:
    """Return nodes (ranks that read one clock), stages and groups, none of all ranks."""
    ranks = spans.ranks
    found: list[Unit] = []
    clock, stage = (column[spans.first_rows] for column in (spans.clock, spans.stage))
    clocks, first = np.unique(clock, return_index=True)
    if (clocks != 0).all():
        # Nodes are numbered as their ranks are.
        for number, each in enumerate(clocks[np.argsort(first)]):
            found.append(Unit(f"node {number}", frozenset(ranks[clock == each].tolist())))
    for each in np.unique(stage[stage >= 0]).tolist():
        found.append(Unit(f"stage {each}", frozenset(ranks[stage == each].tolist())))
    traffic = np.flatnonzero(spans.of_kind("collective"))
    for group in np.unique(spans.group[traffic])[:_MOST_UNITS].tolist():
        found.append(Unit(f"group {spans.groups[group]}", frozenset(spans.members(group))))
    return [each for each in found if 1 < len(each.ranks) < len(ranks)]


def unit_groups(culprits: Sequence[Culprit], units: Sequence[Unit]) -> tuple[list[Culprit], list[Culprit]]:
    """Return what whole units explain, most with least, and the culprits that are left."""
    left = list(culprits)
    groups: list[Culprit] = []
    while True:
        best: tuple[tuple[int, int], Unit, list[Culprit]] | None = None
        single = [
            each
            for each in left
            if each.kind in ("device", "host", "data", "checkpoint") and len(each.ranks) == 1
        ]
        for unit in units:
            inside = [each for each in single if each.ranks[0] in unit.ranks]
            for first in {each.kind: each for each in reversed(inside)}.values():
                mine = [each for each in inside if first.with_(each)]
                explained = (len(mine), -len(unit.ranks))
                if (
                    len(mine) > 1
                    and len(mine) >= _MOST * len(unit.ranks)
                    and (not best or explained > best[0])
                ):
                    best = (explained, unit, mine)
        if best is None:
            return groups, left
        _, unit, mine = best
        count = len(unit.ranks)
        where = unit.name if len(mine) == count else f"{len(mine)} of {count} ranks of {unit.name}"
        groups.append(replace(joined(mine), where=where))
        left = [each for each in left if each not in mine]


def names_of(units: Sequence[Unit], ranks: Sequence[int]) -> str:
    """Return the units of one kind that some ranks are together: ``node 1, node 2``; empty of none."""
    for kind in ("node", "stage", "group"):
        inside = [each for each in units if each.name.startswith(kind) and each.ranks <= {*ranks}]
        if inside and frozenset().union(*(each.ranks for each in inside)) == {*ranks}:
            return ", ".join(each.name for each in inside[:_MOST_NAMED]) if len(inside) <= _MOST_NAMED else ""
    return ""


def joined(culprits: Sequence[Culprit]) -> Culprit:
    """Return several ranks that are slow in the same way as one culprit of which they are the parts."""
    parts = tuple(sorted(culprits, key=lambda each: each.ranks))
    slower = float(np.mean([each.slower for each in parts]))
    half = sqrt(sum(((each.high - each.low) / 2) ** 2 for each in parts)) / len(parts)
    return Culprit(
        parts[0].kind,
        tuple(rank for each in parts for rank in each.ranks),
        min(each.first for each in parts),
        max(each.last for each in parts),
        slower,
        slower - half,
        slower + half,
        min(each.confidence for each in parts),
        parts=parts,
        others=tuple(sorted({rank for each in parts for rank in each.others})),
    )


_REPLAYED, _LARGE_REPLAYED = 9, 5
"""Steps of a price's median, and fewer where each has more spans than ``_LARGE``."""
_LARGE = 30_000
_LEAST_PRICE = 0.01
"""Share of a step; what costs less is hidden."""
_MOST_ALONE = 16
"""Culprits of a group that are also replayed alone."""
_MORE_TOGETHER = 1.25
"""Where ranks cost so much more together than the sum of each alone, they hide each other."""
_MAD = 1.4826
_MEDIAN = 1.2533
"""Standard error of a median over that of a mean, of normal values."""
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31)
"""Two-sided 95 % of Student's t, by degrees of freedom from 1."""


@dataclass(frozen=True)
class WhatIf:
    """How long steps are, and would be; medians in ns over the replayed steps.

    Attributes
    ----------
    saved_ns, saved_low, saved_high : float
        How much shorter the step would be, with a 95 % interval over steps: NaN of one step.
    """

    before_ns: float
    after_ns: float
    saved_ns: float
    saved_low: float
    saved_high: float

    def __str__(self) -> str:
        """Return it as a sentence: ``812 → 655 ms (-19 % ± 1)``."""
        error = interval_text((self.saved_high - self.saved_low) / 2 / self.before_ns)
        share = percent(-self.saved_ns / self.before_ns, "+.1f") + (f" ± {error}" if error else "")
        times = [significant(each / 1e6, 4) for each in (self.before_ns, self.after_ns)]
        return f"{times[0]} → {times[1]} ms ({share})"


class Prices:
    """Replays steps of spans without some of what is slow in them."""

    def __init__(self, spans: Spans, done: Work, steps: StepReplay) -> None:
        self._spans, self._work, self._replay = spans, done, steps

    def verdict(self, verdict: Verdict) -> Verdict:
        """Return a verdict with the prices of its culprits, those that are slow together as one."""
        units = units_of(self._spans)
        groups, left = unit_groups(verdict.culprits, units)
        alone = self._alone(verdict.culprits if len(verdict.culprits) <= _MOST_ALONE else left[:_MOST_ALONE])
        groups = [self._priced(each, alone) for each in groups]
        for several in _alike(left):
            together = self._priced(joined(several), alone)
            known = [alone[each].price_ns for each in several if each in alone]
            if len(known) < len(several) or together.price_ns > _MORE_TOGETHER * sum(known):
                groups.append(together)
                left = [each for each in left if each not in several]
        priced = [*groups, *(alone.get(each) or self._priced(each, alone) for each in left)]
        priced.sort(key=lambda each: -each.price_ns if each.price_ns == each.price_ns else -each.slower)
        matters = [self._matters(each, priced, verdict.step_ns) for each in priced]
        culprits = tuple(each for each, does in zip(priced, matters, strict=True) if does)
        hidden = tuple(each for each, does in zip(priced, matters, strict=True) if not does)
        lasting = [each for each in culprits if each.kind not in ("step", "checkpoint")]
        price = _price(self.without(lasting) if len(lasting) > 1 else None)
        return replace(
            verdict,
            culprits=culprits,
            hidden=hidden,
            price_ns=price[0],
            price_low=price[1],
            price_high=price[2],
        )

    def chosen(self, first: int = 0, last: int | None = None, saving: bool = False) -> list[int]:
        """Return the steps of a range that are replayed, spread over it or over those in which ranks save."""
        steps = self._spans.steps
        if saving:
            steps = steps[np.nan_to_num(self._work.checkpoint).any(axis=0)]
        inside = steps[(steps >= first) & (steps <= (steps[-1] if last is None else last))]
        if not len(inside):
            return []
        count = _LARGE_REPLAYED if len(self._spans) > _LARGE * len(steps) else _REPLAYED
        found: list[int] = np.unique(inside[np.linspace(0, len(inside) - 1, count).astype(int)]).tolist()
        return found

    def compare(
        self, steps: Sequence[int], changes: StepChanges | Sequence[Culprit], before: Sequence[Culprit] = ()
    ) -> WhatIf | None:
        """Return what steps take less with changes, or without culprits; None where none can be replayed."""

        def at(step: int, changes: StepChanges | Sequence[Culprit]) -> float:
            if not isinstance(changes, StepChanges):
                changes = self._changes([each for each in changes if each.first <= step <= each.last])
            return self._replay.duration(step, changes)

        both = np.array(
            [(at(step, before), at(step, changes)) for step in steps if is_whole(step)], float
        ).reshape(-1, 2)
        both = both[np.isfinite(both).all(axis=1)]
        if not len(both):
            return None
        saved = both[:, 0] - both[:, 1]
        middle, error = float(np.median(saved)), _error(saved)
        first, second = np.median(both, axis=0)
        return WhatIf(float(first), float(second), middle, middle - error, middle + error)

    def without(self, culprits: Sequence[Culprit]) -> WhatIf | None:
        """Return what the steps in which any of these is slow take less without all of them."""
        if not culprits:
            return None
        saving = all(each.kind == "checkpoint" for each in culprits)
        steps = self.chosen(min(each.first for each in culprits), max(each.last for each in culprits), saving)
        return self.compare(steps, culprits)

    def _alone(self, culprits: Iterable[Culprit]) -> dict[Culprit, Culprit]:
        return {each: self._priced(each, {}) for each in culprits}

    def _priced(self, culprit: Culprit, alone: dict[Culprit, Culprit]) -> Culprit:
        if culprit.kind == "step":
            done = self._work
            longest = np.nanmax(done.step, axis=0)
            inside = np.isin(done.steps, culprit.steps)
            return replace(culprit, price_ns=float(np.median(longest[inside]) - np.nanmedian(longest)))
        price = _price(self.without([culprit]))
        parts = tuple(alone.get(each, each) for each in culprit.parts)
        return replace(culprit, price_ns=price[0], price_low=price[1], price_high=price[2], parts=parts)

    def _matters(self, culprit: Culprit, all_of_them: Sequence[Culprit], step_ns: float) -> bool:
        """Return whether anybody waits for a culprit, alone or once the others are gone, or nobody knows."""
        pair = culprit.kind == "link" and len(culprit.ranks) == 2
        if pair or culprit.kind in ("step", "stage"):
            return True
        least = _LEAST_PRICE * step_ns
        if culprit.price_ns != culprit.price_ns or (not culprit.price_low <= 0 and culprit.price_ns >= least):
            return True
        others = [each for each in all_of_them if each.kind != "step" and each is not culprit]
        if not others:
            return False
        steps = self.chosen(culprit.first, culprit.last, culprit.kind == "checkpoint")
        result = self.compare(steps, [*others, culprit], before=others)
        return result is None or (not result.saved_low <= 0 and result.saved_ns >= least)

    def _changes(self, culprits: Sequence[Culprit]) -> StepChanges:
        """Return the durations without some culprits: at the level of the others."""
        work: dict[tuple[int, str], float] = {}
        links: dict[tuple[int, ...], float] = {}
        for each in (one for culprit in culprits for one in (culprit.parts or (culprit,))):
            if each.kind == "link":
                links[each.ranks] = 1 / (1 + each.slower)
            elif each.kind == "stage":
                work |= {(rank, "compute"): 1 / (1 + each.slower) for rank in each.ranks}
            elif each.kind == "device":
                work |= self._parts(each)
            elif each.kind != "step":
                work |= {(rank, each.kind): self._factor(each, rank) for rank in each.ranks}
        return StepChanges(work, links)

    def _parts(self, culprit: Culprit) -> dict[tuple[int, str], float]:
        """Return the factors on what a slow device computes longer than the other ranks of its stage."""
        done = self._work
        inside = (done.steps >= culprit.first) & (done.steps <= culprit.last)
        at = int(np.searchsorted(done.ranks, culprit.ranks[0]))
        others = (done.stage == done.stage[at]) & (done.ranks != culprit.ranks[0])
        if culprit.others:
            others &= np.isin(done.ranks, culprit.others)
        uniform = {(culprit.ranks[0], "compute"): 1 / (1 + culprit.slower)}
        if not others.any():
            return uniform
        own = np.nanmedian(done.parts[:, at, inside], axis=1)
        usual = np.nanmedian(np.nanmedian(done.parts[:, others][:, :, inside], axis=2), axis=1)
        more = np.maximum(own - usual, 0)
        if not more.sum() > 0:
            return uniform
        extra = own.sum() * (1 - 1 / (1 + culprit.slower)) * more / more.sum()
        return {
            (culprit.ranks[0], kind): max(0.0, 1 - extra[part] / own[part])
            for part, kind in enumerate(COMPUTING)
            if own[part] > 0
        }

    def _factor(self, culprit: Culprit, rank: int) -> float:
        done = self._work
        inside = (done.steps >= culprit.first) & (done.steps <= culprit.last)
        at = int(np.searchsorted(done.ranks, rank))
        if culprit.kind == "checkpoint":
            inside &= np.nan_to_num(done.checkpoint).any(axis=0)
        now = float(np.nanmedian(getattr(done, culprit.kind)[at, inside]))
        extra = culprit.slower * float(np.nanmedian(done.compute[at]))
        return max(0.0, 1 - extra / now) if now > 0 else 1.0


def _alike(culprits: Sequence[Culprit]) -> list[list[Culprit]]:
    """Return which single ranks are slow in the same way at the same steps, several each."""
    found: list[list[Culprit]] = []
    for each in culprits:
        if each.kind in ("step", "stage", "link") or each.parts:
            continue
        mine = next((several for several in found if several[0].with_(each)), None)
        if mine is None:
            found.append([each])
        else:
            mine.append(each)
    return [several for several in found if len(several) > 1]


def _price(result: WhatIf | None) -> tuple[float, float, float]:
    if result is None:
        return math.nan, math.nan, math.nan
    price, low, high = (
        each if each != each else max(0.0, each)
        for each in (result.saved_ns, result.saved_low, result.saved_high)
    )
    return price, low, high


def _error(values: Floats) -> float:
    """Return the half width of the 95 % interval of a median; NaN of one value."""
    if len(values) < 2:
        return math.nan
    spread = _MAD * float(np.median(np.abs(values - np.median(values))))
    return _STUDENT[min(len(values) - 1, len(_STUDENT)) - 1] * _MEDIAN * spread / math.sqrt(len(values))
