"""Who makes the others wait: slow devices, links, hosts and data, uneven stages and bad steps. "Healthy" is an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import erf, sqrt
from typing import Any

import numpy as np

from .clocks import Clocks
from .dependencies import Dependencies
from .spans import Bools, Floats, Integers, Spans, ranks_text
from .work import Work

__all__ = ["Culprit", "Verdict", "judge"]

_LEAST = 0.032
"""What is slower by less is as healthy devices differ."""
_LEAST_LINK = 0.15
_LEAST_STAGE = 0.08
_BAD_STEP = 0.5
"""A single step longer by this share of the usual one."""
_SURE = 6.0
"""Standard errors that a finding must be above nothing."""
_SHORTEST = 3
_MAD = 1.4826
_NORMAL = 1.96


@dataclass(frozen=True)
class Culprit:
    """One thing that costs time.

    Attributes
    ----------
    kind : str
        ``device`` (computes more slowly), ``link`` (transfers between the ranks take longer), ``host`` (pauses between passes), ``data`` (waits for batches), ``stage`` (has more to compute than other stages), ``step`` (one long step).
    ranks : tuple of int
        Whose.
    first, last : int
        Steps.
    slower : float
        0.34 where it takes 1.34 times as long as that of the others; of host and data what they add to the rank's own computing.
    low, high : float
        95 % interval of ``slower``.
    confidence : float
        That ``slower`` is more than nothing, 0 to 1.
    price_ns, price_low, price_high : float
        By how much the step would be shorter without it, with an interval over steps; NaN where it was not replayed.
    """

    kind: str
    ranks: tuple[int, ...]
    first: int
    last: int
    slower: float
    low: float
    high: float
    confidence: float
    price_ns: float = float("nan")
    price_low: float = float("nan")
    price_high: float = float("nan")

    def __str__(self) -> str:
        """Return it as sentences: ``Rank 5 computes 34 % (± 1) slower in steps 120 to 400. Without that a step is 157 ms (± 8) shorter.``"""
        who = ranks_text(self.ranks)
        several = "" if len(self.ranks) > 1 else "s"
        by = f"{self.slower:.1%} (± {(self.high - self.low) / 2:.1%})"
        says = {
            "device": f"{who} compute{several} {by} slower than their like",
            "link": f"transfers between {who} take {by} longer than others of their size",
            "host": f"{who} pause{several} between passes for {by} of the own computing",
            "data": f"{who} wait{several} for data for {by} of the own computing",
            "stage": f"the stage of {who} computes {by} more than the others",
            "step": f"the step takes {self.slower:.0%} longer; {who} make{several} it so",
        }[self.kind]
        when = f"Step {self.first}" if self.first == self.last else f"Steps {self.first} to {self.last}"
        price = ""
        if self.price_ns == self.price_ns:
            error = (self.price_high - self.price_low) / 2e6
            price = f" Without that a step is {self.price_ns / 1e6:.3g} ms (± {error:.2g}) shorter."
        return f"{when}: {says}.{price}"

    def to_message(self) -> dict[str, Any]:
        """Return it as plain JSON, with ``sentence``; what is not known is None."""
        values = {
            name: None if isinstance(value, float) and value != value else value
            for name, value in asdict(self).items()
        }
        return values | {"ranks": list(self.ranks), "sentence": str(self)}


@dataclass(frozen=True)
class Verdict:
    """What was found in the steps ``first`` to ``last``.

    Attributes
    ----------
    culprits : tuple of Culprit
        The dearest first.
    first, last : int
        Steps that were judged; 0 where there were none.
    step_ns : float
        Median duration of a step, NaN where there was none.
    problems : tuple of str
        What could not be used or judged, in sentences.
    """

    culprits: tuple[Culprit, ...]
    first: int
    last: int
    step_ns: float
    problems: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether steps were judged and nobody makes the others wait."""
        return not self.culprits and self.last > 0

    def __str__(self) -> str:
        """Return it as sentences, a line each."""
        if not self.last:
            return "\n".join(("There is nothing to judge.", *self.problems))
        judged = f"Steps {self.first} to {self.last}, {self.step_ns / 1e6:.4g} ms each"
        found = [str(each) for each in self.culprits] or ["Healthy: no rank makes the others wait."]
        return "\n".join((f"{judged}.", *found, *self.problems))

    def to_message(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "healthy": self.healthy,
            "culprits": [each.to_message() for each in self.culprits],
            "first": self.first,
            "last": self.last,
            "step_ns": None if self.step_ns != self.step_ns else self.step_ns,
            "problems": list(self.problems),
        }


def judge(
    spans: Spans, done: Work, found: Dependencies | None = None, clocks: Clocks | None = None
) -> Verdict:
    """Find what is slow, without prices.

    Parameters
    ----------
    spans : Spans
        The steps to judge.
    done : Work
        The same, split.
    found : Dependencies, optional
        With ``clocks`` links are judged too.
    clocks : Clocks, optional
    """
    problems = list(spans.problems)
    if not done.ready:
        return Verdict((), 0, 0, float("nan"), (*problems, "There is no whole step."))
    steps = done.steps
    usual = float(np.nanmedian(done.step))
    bad, kept = _bad_steps(done)
    culprits = list(bad)
    culprits += _devices(done, kept, problems)
    own = np.nanmedian(done.compute, axis=1, keepdims=True)
    culprits += _found("host", done, (done.host - _others(done.host, done.stage)) / own, kept)
    culprits += _found("data", done, done.data / own, kept)
    culprits += _stages(done, culprits, kept)
    if found is not None and clocks is not None:
        problems += [*found.problems, *clocks.problems]
        culprits += _links(found, clocks, steps, kept)
    merged = sorted(_merged(culprits, len(done.ranks)), key=lambda each: -each.slower)
    return Verdict(tuple(merged), int(steps[0]), int(steps[-1]), usual, tuple(problems))


def _bad_steps(done: Work) -> tuple[list[Culprit], Bools]:
    """Return single steps that are far longer than those around them, and which steps are left."""
    longest = np.nanmax(done.step, axis=0)
    around = _running_median(longest[None, :], 9)[0]
    long = longest > (1 + _BAD_STEP) * around
    kept = np.ones(len(longest), bool)
    culprits = []
    for at in np.flatnonzero(long):
        near = long[max(0, at - 2) : at + 3].sum()
        # The first step warms up.
        if at == 0 or near > 2:
            continue
        kept[at] = False
        own = (done.compute + done.host + done.checkpoint + done.data)[:, at]
        usual = np.nanmedian(done.compute + done.host + done.checkpoint + done.data, axis=1)
        extra = own - usual
        late = extra > 0.5 * np.nanmax(extra)
        slower = float(longest[at] / around[at] - 1)
        step = int(done.steps[at])
        ranks = tuple(int(rank) for rank in done.ranks[late])
        culprits.append(Culprit("step", ranks, step, step, slower, slower, slower, 1.0))
    return culprits, kept


def _devices(done: Work, kept: Bools, problems: list[str]) -> list[Culprit]:
    alone = [int(stage) for stage in np.unique(done.stage) if (done.stage == stage).sum() == 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(done.compute)
        against = values - _others(values, done.stage)
        if alone and len(done.ranks) > 1:
            if done.unit is not None:
                unit = np.log(done.unit)
                single = np.isin(done.stage, alone)
                against[single] = (unit - _others(unit, np.zeros_like(done.stage)))[single]
            else:
                problems.append(
                    "A stage of one rank is compared with itself at other steps only: whether it has always been slow, or has more to compute, shows with layers (timeline='layers')."
                )
    return _found("device", done, against, kept, logarithmic=True)


def _others(values: Floats, role: Integers) -> Floats:
    """Return for each rank and step what ranks of the same role have: their median, of two the other, of one its own past."""
    base = np.empty_like(values)
    for each in np.unique(role):
        mine = np.flatnonzero(role == each)
        if len(mine) >= 3:
            base[mine] = np.nanmedian(values[mine], axis=0)
        elif len(mine) == 2:
            base[mine] = values[mine[::-1]]
        else:
            base[mine] = np.nanquantile(_running_median(values[mine], 5), 0.2, axis=1, keepdims=True)
    return base


def _found(
    kind: str, done: Work, against: Floats, kept: Bools, logarithmic: bool = False, least: float = _LEAST
) -> list[Culprit]:
    """Return the ranks that are above the others in a stretch of steps."""
    steps = done.steps[kept]
    culprits = []
    found = _stretches(against[:, kept], least)
    level = np.nanmedian(against[:, kept], axis=1)
    for rank, (begin, end, mean, error) in found.items():
        other = np.delete(level, rank)
        spread = _MAD * float(np.nanmedian(np.abs(other - np.nanmedian(other)))) if len(other) >= 3 else 0.0
        if mean < 4 * spread:
            continue
        shown = np.expm1 if logarithmic else float
        culprits.append(
            Culprit(
                kind,
                (int(done.ranks[rank]),),
                int(steps[begin]),
                int(steps[end - 1]),
                float(shown(mean)),
                float(shown(mean - _NORMAL * error)),
                float(shown(mean + _NORMAL * error)),
                _confidence(mean / error),
            )
        )
    return culprits


def _stretches(values: Floats, least: float) -> dict[int, tuple[int, int, float, float]]:
    """Return by row the stretch in which it is above half of ``least`` most, where its mean is at least that: beginning, end, mean and standard error."""
    result: dict[int, tuple[int, int, float, float]] = {}
    if values.shape[1] < _SHORTEST:
        return result
    smooth = np.nan_to_num(_running_median(values, 3))
    sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(smooth - least / 2, axis=1)], axis=1)
    lowest = np.minimum.accumulate(sums, axis=1)
    end = (sums - lowest).argmax(axis=1)
    with np.errstate(invalid="ignore"):
        noise = _MAD * np.nanmedian(np.abs(np.diff(values, axis=1)), axis=1) / sqrt(2)
    for row in range(len(values)):
        begin = int(sums[row, : end[row] + 1].argmin())
        count = int(end[row]) - begin
        if count < _SHORTEST:
            continue
        mean = float(np.nanmedian(values[row, begin : end[row]]))
        error = max(float(noise[row]) / sqrt(count), 1e-4)
        if mean >= least and mean >= _SURE * error:
            result[row] = (begin, int(end[row]), mean, error)
    return result


def _stages(done: Work, culprits: Iterable[Culprit], kept: Bools) -> list[Culprit]:
    """Return the stages that compute more than the others, apart from what their slow devices take."""
    stages = np.unique(done.stage)
    if len(stages) < 2:
        return []
    compute = done.compute.copy()
    for each in culprits:
        if each.kind == "device":
            rows = np.isin(done.ranks, each.ranks)
            inside = (done.steps >= each.first) & (done.steps <= each.last)
            compute[np.ix_(rows, inside)] /= 1 + each.slower
    levels = np.log(
        np.stack([np.nanmedian(compute[done.stage == stage][:, kept], axis=0) for stage in stages])
    )
    result = []
    for at, stage in enumerate(stages):
        others = np.delete(levels, at, axis=0)
        apart = levels[at] - np.median(others, axis=0)
        mean = float(np.median(apart))
        error = max(_MAD * float(np.median(np.abs(apart - mean))) / sqrt(len(apart)), 1e-4)
        if mean >= _LEAST_STAGE and mean >= _SURE * error:
            ranks = tuple(int(rank) for rank in done.ranks[done.stage == stage])
            low, high = (float(np.expm1(mean + sign * _NORMAL * error)) for sign in (-1, 1))
            first, last = int(done.steps[0]), int(done.steps[-1])
            result.append(
                Culprit(
                    "stage", ranks, first, last, float(np.expm1(mean)), low, high, _confidence(mean / error)
                )
            )
    return result


def _links(found: Dependencies, clocks: Clocks, steps: Integers, kept: Bools) -> list[Culprit]:
    """Return the pairs and groups of ranks whose transfers take longer than those of their like."""
    culprits: list[Culprit] = []
    for classes, ends, step, took in (_messages(found, clocks), _collectives(found, clocks)):
        for each in np.unique(classes):
            mine = classes == each
            culprits += _slow_links(ends[mine], step[mine], took[mine], clocks, steps, kept, found)
    return culprits


def _messages(found: Dependencies, clocks: Clocks) -> tuple[Integers, Integers, Integers, Floats]:
    """Return of each message that was waited for: what it is like, its event, its step, and the ns from when both ends were ready until it was there."""
    spans = found.spans
    events = np.flatnonzero(found.complete & found.message)
    sent, received = found.rows[found.first[events]], found.rows[found.first[events] + 1]
    left = clocks.aligned(spans.rank[sent], spans.start[sent])
    ready = clocks.aligned(spans.rank[received], spans.end[received] - spans.blocked[received])
    came = clocks.aligned(spans.rank[received], spans.end[received])
    # Of one that was there before it was asked for nobody knows how long it took.
    waited = (left > ready) & (came > left)
    stages = (spans.stage[sent] + 1) * (1 << 20) + spans.stage[received] + 1
    _, like = np.unique(np.stack([stages, spans.bytes[sent]]), axis=1, return_inverse=True)
    return (
        like.ravel()[waited],
        events[waited],
        spans.step[sent][waited],
        (came - left)[waited].astype(float),
    )


def _collectives(found: Dependencies, clocks: Clocks) -> tuple[Integers, Integers, Integers, Floats]:
    """Return the same of each collective: from when the last rank came until the first went on."""
    spans = found.spans
    events = np.flatnonzero(found.complete & ~found.message)
    if not len(events):
        none = np.arange(0)
        return none, none, none, np.zeros(0)
    rows, first = found.rows, found.first
    came = clocks.aligned(spans.rank[rows], spans.start[rows])
    went = clocks.aligned(spans.rank[rows], spans.end[rows])
    took = np.minimum.reduceat(went, first[:-1])[events] - np.maximum.reduceat(came, first[:-1])[events]
    size = np.diff(first)[events]
    head = rows[first[events]]
    waited = (np.maximum.reduceat(spans.blocked[rows], first[:-1])[events] > 0) & (took > 0)
    _, like = np.unique(np.stack([spans.name[head], size, spans.bytes[head]]), axis=1, return_inverse=True)
    return like.ravel()[waited], events[waited], spans.step[head][waited], took[waited].astype(float)


def _slow_links(
    events: Integers,
    step: Integers,
    took: Floats,
    clocks: Clocks,
    steps: Integers,
    kept: Bools,
    found: Dependencies,
) -> list[Culprit]:
    spans = found.spans
    head, tail = found.rows[found.first[events]], found.rows[found.first[events + 1] - 1]
    message = found.message[events[0]]
    width = int(spans.rank.max()) + 1
    key = spans.rank[head] * width + spans.rank[tail] if message else spans.group[head]
    links, link = np.unique(key, return_inverse=True)
    at = np.searchsorted(steps, step)
    # The shortest of a step: what a transfer takes when nothing else is in its way.
    cell = link * len(steps) + at
    order = np.lexsort((took, cell))
    cells, values = cell[order], took[order]
    first = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
    size = np.diff(np.append(first, len(cells)))
    level = np.full(len(links) * len(steps), np.nan)
    level[cells[first]] = values[first + size // 2]
    level = np.log(level.reshape(len(links), len(steps)))
    against = level - _others(level, np.zeros(len(links), int))
    culprits = []
    for row, (begin, end, mean, error) in _stretches(against[:, kept], _LEAST_LINK).items():
        mine = np.flatnonzero(link == row)
        members = sorted({int(rank) for rank in spans.rank[found.of(int(events[mine[0]]))]})
        excess = -np.expm1(-mean) * float(np.median(took[mine]))
        places = np.searchsorted(clocks.ranks, members)
        if excess < clocks.half_width_ns[places].max() or len({*clocks.component[places]}) > 1:
            continue
        now = steps[kept]
        culprits.append(
            Culprit(
                "link",
                tuple(members),
                int(now[begin]),
                int(now[end - 1]),
                float(np.expm1(mean)),
                float(np.expm1(mean - _NORMAL * error)),
                float(np.expm1(mean + _NORMAL * error)),
                _confidence(mean / error),
            )
        )
    return culprits


def _merged(culprits: Sequence[Culprit], ranks: int) -> list[Culprit]:
    """Join findings that are one: both directions of a link, and hosts or data of most ranks at once."""
    result: list[Culprit] = []
    for each in sorted(culprits, key=lambda one: -one.slower):
        same = next((at for at, other in enumerate(result) if _one(each, other)), None)
        if same is None:
            result.append(each)
        elif each.kind in ("host", "data"):
            joined = tuple(sorted({*result[same].ranks, *each.ranks}))
            result[same] = replace(result[same], ranks=joined)
    return result


def _one(a: Culprit, b: Culprit) -> bool:
    overlap = min(a.last, b.last) - max(a.first, b.first) + 1
    shorter = min(a.last - a.first, b.last - b.first) + 1
    if a.kind != b.kind or overlap < shorter / 2:
        return False
    if a.kind == "link":
        return {*a.ranks} == {*b.ranks}
    return a.kind in ("host", "data") and 0.5 < (1 + a.slower) / (1 + b.slower) < 2


def _running_median(values: Floats, width: int) -> Floats:
    """Return the median of each value and those around it along the last axis; at the ends of fewer."""
    half = width // 2
    padded = np.pad(values, ((0, 0), (half, half)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)
    with np.errstate(invalid="ignore"):
        median: Floats = np.nanmedian(windows, axis=2)
    return median


def _confidence(errors: float) -> float:
    return 0.5 * (1 + erf(errors / sqrt(2)))
