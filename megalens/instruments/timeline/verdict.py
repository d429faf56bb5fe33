"""Who makes the others wait: slow devices, links, hosts and data, uneven stages and bad steps, or nobody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import erf, sqrt

import numpy as np

from .clocks import Clocks
from .culprits import Culprit, Verdict
from .dependencies import NOT_BLOCKED_NS, Dependencies
from .long_steps import LEAST_NS, MAD, SURE, bad_steps, median, of_one_rank, running_median, stalls, stretches
from .prices import joined, names_of, units_of
from .spans import COMPUTING, INFERRED, Bools, Floats, Integers, Spans, Work

_LEAST = 0.032
"""Healthy devices differ by less."""
_LEAST_PASS = 0.06
"""The same of one kind of pass alone."""
_LEAST_LINK = 0.15
_LEAST_STAGE = 0.08
_SURE_OF_PAST = 10.0
"""The same for a link that can only be compared with its own past."""
_SURE_OF_ONE = 20.0
"""The same for all others where one rank is faster than they."""
_NORMAL = 1.96


def judge(
    spans: Spans, done: Work, found: Dependencies | None = None, clocks: Clocks | None = None
) -> Verdict:
    """Find what is slow, without prices; ``found`` with ``clocks`` has links judged too."""
    problems = list(spans.problems)
    if not done.ready:
        return Verdict((), 0, 0, float("nan"), (*problems, "There is no whole step."))
    steps = done.steps
    usual = float(np.nanmedian(done.step))
    bad, moving, usable = bad_steps(done)
    most = _most(spans, done, usable)
    slow = {rank for each in most for rank in each.ranks}
    culprits = [*bad, *most]
    culprits += [each for each in _devices(done, usable, problems) if not {*each.ranks} & slow]
    # Where no pass was recorded, what is left of a step may be computing or waiting: nobody is blamed for it.
    passes = bool(spans.of_kind(*COMPUTING).any())
    seen = done if passes else replace(done, compute=done.step)
    own = np.nanmedian(seen.compute, axis=1, keepdims=True)
    if passes:
        culprits += _found("host", done, (done.host - _others(done.host, done.stage)) / own, usable)
    waits = _saves(seen, own, [*culprits, *_found("data", seen, done.data / own, usable)])
    culprits = waits if passes else [replace(each, share_of="steps") for each in waits]
    culprits += _stages(done, culprits, usable)
    if found is not None and clocks is not None:
        problems += [*found.problems, *clocks.problems]
        culprits += _links(found, clocks, steps, usable)
    merged = sorted(_merged(culprits, len(done.ranks)), key=lambda each: -each.slower)
    unexplained = [*moving, *stalls(done, usable)]
    alone = len(done.ranks) == 1
    if alone:
        merged, unexplained = ([of_one_rank(each, done) for each in some] for some in (merged, unexplained))
    verdict = Verdict(tuple(merged), int(steps[0]), int(steps[-1]), usual, tuple(problems))
    return replace(verdict, stalls=tuple(unexplained), alone=alone)


def _saves(done: Work, own: Floats, culprits: list[Culprit]) -> list[Culprit]:
    """Return culprits with ranks that save while others do not, in place of their single long steps."""
    saving = np.nan_to_num(done.checkpoint)
    at_all: Bools = saving.max(axis=0) > 0
    if not at_all.any():
        return culprits
    more = (done.checkpoint - _others(done.checkpoint, np.zeros_like(done.stage))) / own
    found = _found("checkpoint", done, more, at_all) if len(done.ranks) > 1 else []
    who = {rank for each in found for rank in each.ranks}
    steps = {*done.steps[at_all].tolist()}
    known = [
        each for each in culprits if each.kind == "step" and {*each.steps} <= steps and {*each.ranks} <= who
    ]
    return [*(each for each in culprits if each not in known), *found]


def _devices(done: Work, usable: Bools, problems: list[str]) -> list[Culprit]:
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
                    "A stage of one rank is compared with itself at other steps only: whether it has always "
                    "been slow, or has more to compute, shows with layers (timeline='layers')."
                )
    found = _found("device", done, against, usable, logarithmic=True)
    known = {rank for each in found for rank in each.ranks}
    return found + [each for each in _passes(done, usable) if not {*each.ranks} & known]


def _passes(done: Work, usable: Bools) -> list[Culprit]:
    """Return devices that are slow in their forward or backward passes, relative to all that they compute."""
    several = np.array([(done.stage == stage).sum() > 1 for stage in done.stage])
    forward, backward, wgrad, _ = done.parts
    result: list[Culprit] = []
    for part in (forward, backward + wgrad):
        with np.errstate(divide="ignore"):
            values = np.where(part > 0, np.log(part), np.nan)
        # Who is alone in a stage is compared with nobody here.
        values[~several] = 0
        against = np.where(several[:, None], values - _others(values, done.stage), np.nan)
        for each in _found("device", done, against, usable, logarithmic=True, least=_LEAST_PASS):
            at = int(np.searchsorted(done.ranks, each.ranks[0]))
            inside = (done.steps >= each.first) & (done.steps <= each.last)
            own, usual = (float(np.nanmedian(times[at, inside])) for times in (done.compute, part))
            extra = usual * each.slower / (1 + each.slower)
            share = extra / (own - extra) / each.slower
            sizes = [share * size for size in (each.slower, each.low, each.high)]
            if extra >= LEAST_NS:
                result.append(replace(each, slower=sizes[0], low=sizes[1], high=sizes[2]))
    return result


def _most(spans: Spans, done: Work, usable: Bools) -> list[Culprit]:
    """Return as one the devices that are slow where they are more than half of a stage.

    The rest of it shows what is possible, where the two are clearly apart.
    """
    values = np.log(done.compute)
    faster = _found("device", done, _others(values, done.stage) - values, usable, logarithmic=True)
    steps = done.steps[usable]
    found: list[Culprit] = []
    for stage in np.unique(done.stage):
        mine = np.flatnonzero(done.stage == stage)
        fast = [each for each in faster if each.ranks[0] in done.ranks[mine]]
        if not fast or 2 * len(fast) >= len(mine):
            continue
        others = tuple(sorted(each.ranks[0] for each in fast))
        rest = np.isin(done.ranks[mine], others)
        against = (values[mine] - median(values[mine[rest]], axis=0))[:, usable]
        first, last = (int(np.median([getattr(each, end) for each in fast])) for end in ("first", "last"))
        level = median(against[:, (steps >= first) & (steps <= last)], axis=1)
        apart = float(np.median(level[~rest]))
        # One rank alone may be faster by chance, as where processes fight for processors.
        slow = stretches(against[~rest], _LEAST, SURE if len(fast) > 1 else _SURE_OF_ONE)
        if len(slow) < len(mine) - len(fast) or not (
            np.abs(level[rest]).max() < apart / 2 < level[~rest].min()
        ):
            continue
        ranks = done.ranks[mine[~rest]].tolist()
        parts = [
            replace(_culprit("device", (ranks[row],), steps, stretch, True), others=others)
            for row, stretch in slow.items()
        ]
        same = next((each for each in found if each.with_(parts[0])), None)
        if same is not None:
            found.remove(same)
            parts += same.parts
        found.append(joined(parts))
    return [replace(each, where=names_of(units_of(spans), each.ranks)) for each in found]


def _others(values: Floats, role: Integers, past: float = 0.2) -> Floats:
    """Return each value's reference: the median of the others of its role; of one alone, its own past."""
    base = np.empty_like(values)
    for each in np.unique(role):
        mine = np.flatnonzero(role == each)
        if len(mine) > 1:
            base[mine] = _median_of_others(values[mine])
        else:
            base[mine] = np.nanquantile(running_median(values[mine], 5), past, axis=1, keepdims=True)
    return base


def _median_of_others(values: Floats) -> Floats:
    """Return for each row the median of all other rows, by column; missing values are passed over."""
    order = np.argsort(values, axis=0)
    rank = np.argsort(order, axis=0)
    ordered = np.append(np.take_along_axis(values, order, axis=0), np.full((1, values.shape[1]), np.nan), 0)
    count = np.isfinite(values).sum(axis=0)
    others = np.where(np.isfinite(values), count - 1, count)
    result = np.zeros(values.shape)
    for at in (np.maximum(others - 1, 0) // 2, others // 2):
        # Among the others, all from its own place on move up by one.
        at = np.where(others > 0, np.minimum(at + (at >= rank), len(values)), len(values))
        result += np.take_along_axis(ordered, at, axis=0) / 2
    return result


def _found(
    kind: str, done: Work, against: Floats, usable: Bools, logarithmic: bool = False, least: float = _LEAST
) -> list[Culprit]:
    """Return the ranks that are above the others in a run of steps."""
    steps = done.steps[usable]
    culprits = []
    found = stretches(against[:, usable], least)
    level = median(against[:, usable], axis=1)
    for rank, (begin, end, mean, error) in found.items():
        # By how much others of the same role differ without being slow.
        alike = level[(done.stage == done.stage[rank]) & (np.arange(len(level)) != rank)]
        alike = alike[np.isfinite(alike)]
        spread = MAD * float(np.median(np.abs(alike - np.median(alike)))) if len(alike) >= 4 else 0.0
        usual = float(np.nanmedian(done.compute[rank]))
        if mean < 3 * spread or mean * usual < LEAST_NS:
            continue
        culprits.append(
            _culprit(kind, (int(done.ranks[rank]),), steps, (begin, end, mean, error), logarithmic)
        )
    return culprits


def _culprit(
    kind: str,
    ranks: tuple[int, ...],
    steps: Integers,
    stretch: tuple[int, int, float, float],
    logarithmic: bool = False,
) -> Culprit:
    begin, end, mean, error = stretch
    slower, low, high = (
        float(np.expm1(value) if logarithmic else value)
        for value in (mean, mean - _NORMAL * error, mean + _NORMAL * error)
    )
    first, last = int(steps[begin]), int(steps[end - 1])
    return Culprit(kind, ranks, first, last, slower, low, high, _confidence(mean / error))


def _stages(done: Work, culprits: Iterable[Culprit], usable: Bools) -> list[Culprit]:
    """Return the stages that compute more than the others, apart from the time of their slow devices."""
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
        np.stack([np.nanmedian(compute[done.stage == stage][:, usable], axis=0) for stage in stages])
    )
    result = []
    for at, stage in enumerate(stages):
        others = np.delete(levels, at, axis=0)
        apart = levels[at] - np.median(others, axis=0)
        mean = float(np.median(apart))
        error = max(MAD * float(np.median(np.abs(apart - mean))) / sqrt(len(apart)), 1e-4)
        if mean >= _LEAST_STAGE and mean >= SURE * error:
            ranks = tuple(int(rank) for rank in done.ranks[done.stage == stage])
            result.append(_culprit("stage", ranks, done.steps, (0, len(done.steps), mean, error), True))
    return result


@dataclass(frozen=True)
class _Transfers:
    """Transfers that were waited for."""

    like: Integers
    """Class of comparable transfers ``[n]``, as all below."""
    link: Integers
    """The pair or group of ranks."""
    back: Bools
    """Whether it goes from the higher rank to the lower."""
    step: Integers
    took: Floats
    """ns from the arrival of the last sender to the end of the transfer."""
    members: Mapping[int, tuple[int, ...]]


def _links(found: Dependencies, clocks: Clocks, steps: Integers, usable: Bools) -> list[Culprit]:
    """Return the pairs and groups of ranks whose transfers take longer than those of their like.

    Of messages in both directions clocks cancel: one direction gains by an offset what the other loses.
    Otherwise nothing smaller than the uncertainty of the clocks is reported.
    """
    culprits: list[Culprit] = []
    messages, collectives = _messages(found, clocks), _collectives(found, clocks)
    for transfers, way in ((messages, "both"), (messages, "there"), (messages, "back"), (collectives, "")):
        for like in np.unique(transfers.like):
            mine = transfers.like == like
            links, link = np.unique(transfers.link[mine], return_inverse=True)
            at = np.searchsorted(steps, transfers.step[mine])
            took, back = transfers.took[mine], transfers.back[mine]
            ways = [~back, back] if way == "both" else [back if way == "back" else ~back]
            level = np.mean(
                [_levels(link[some], at[some], took[some], len(links), len(steps)) for some in ways], axis=0
            )
            with np.errstate(invalid="ignore"):
                # A network differs more from itself over time than a device does.
                against = np.log(level) - _others(np.log(level), np.zeros(len(links), int), 0.5)
            sure = SURE if len(links) > 1 else _SURE_OF_PAST
            for row, stretch in stretches(against[:, usable], _LEAST_LINK, sure).items():
                members = transfers.members[int(links[row])]
                excess = -np.expm1(-stretch[2]) * float(
                    np.nanmedian(level[row, usable][stretch[0] : stretch[1]])
                )
                indices = np.searchsorted(clocks.ranks, members)
                if way == "both" or excess > clocks.between(indices):
                    culprits.append(_culprit("link", members, steps[usable], stretch, logarithmic=True))
    return culprits


def _messages(found: Dependencies, clocks: Clocks) -> _Transfers:
    spans = found.spans
    inferred = np.array([name == INFERRED for name in spans.names] or [False])
    events = np.flatnonzero(
        found.complete & found.message & ~inferred[spans.name[found.rows[found.first[:-1]]]]
    )
    sent, received = found.rows[found.first[events]], found.rows[found.first[events] + 1]
    left = clocks.aligned(spans.rank[sent], spans.start[sent])
    ready = clocks.aligned(spans.rank[received], spans.end[received] - spans.blocked[received])
    came = clocks.aligned(spans.rank[received], spans.end[received])
    # The transfer time of a message that was there before the receive is unknown.
    waited = (left > ready) & (came > left)
    sent, received, took = sent[waited], received[waited], (came - left)[waited].astype(float)
    low, high = (which(spans.rank[sent], spans.rank[received]) for which in (np.minimum, np.maximum))
    stages = [which(spans.stage[sent], spans.stage[received]) for which in (np.minimum, np.maximum)]
    like = _same_numbers(*stages, spans.bytes[sent])
    link = low * (int(spans.rank.max(initial=0)) + 1) + high
    _, first = np.unique(link, return_index=True)
    members = {int(link[at]): (int(low[at]), int(high[at])) for at in first}
    return _Transfers(like, link, spans.rank[sent] > spans.rank[received], spans.step[sent], took, members)


def _collectives(found: Dependencies, clocks: Clocks) -> _Transfers:
    spans, rows, first = found.spans, found.rows, found.first[:-1]
    if not found.count:
        none = np.arange(0)
        return _Transfers(none, none, none.astype(bool), none, none.astype(float), {})
    there = clocks.aligned(spans.rank[rows], spans.arrival[rows])
    wait = clocks.aligned(spans.rank[rows], spans.end[rows] - spans.blocked[rows])
    went = clocks.aligned(spans.rank[rows], spans.end[rows])
    last, done = np.maximum.reduceat(there, first), np.minimum.reduceat(went, first)
    size = np.diff(found.first)
    # What was done before anybody waited for it ended nobody knows when.
    saw = (wait <= np.repeat(last, size)) | ((went <= np.repeat(done, size)) & (went - wait > NOT_BLOCKED_NS))
    took = done - last
    waited = found.complete & found.mutual & (took > 0) & np.logical_or.reduceat(saw, first)
    waited &= np.maximum.reduceat(spans.blocked[rows], first) > 0
    events = np.flatnonzero(waited)
    head = rows[first[events]]
    like = _same_numbers(spans.name[head], size[events], spans.bytes[head])
    link = spans.group[head]
    members = {int(group): tuple(spans.members(int(group))) for group in np.unique(link)}
    return _Transfers(
        like, link, np.zeros(len(events), bool), spans.step[head], took[events].astype(float), members
    )


def _same_numbers(*columns: Integers) -> Integers:
    """Return a number for each row, equal for equal rows."""
    if not len(columns[0]):
        return np.arange(0)
    _, numbers = np.unique(np.stack(columns), axis=1, return_inverse=True)
    return numbers.ravel()


def _levels(link: Integers, at: Integers, took: Floats, links: int, steps: int) -> Floats:
    """Return each link's median transfer in each step, ``[links, steps]``, or NaN."""
    level = np.full(links * steps, np.nan)
    cell = link * steps + at
    order = np.lexsort((took, cell))
    cells, values = cell[order], took[order]
    if len(cells):
        first = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
        size = np.diff(np.append(first, len(cells)))
        level[cells[first]] = values[first + size // 2]
    return level.reshape(links, steps)


def _merged(culprits: Sequence[Culprit], ranks: int) -> list[Culprit]:
    """Join findings that are one: both directions of a link, and hosts or data of most ranks at once."""
    result: list[Culprit] = []
    for each in sorted(culprits, key=lambda one: -one.slower):
        alike = [other for other in culprits if _one(each, other)]
        joined = tuple(sorted({rank for other in alike for rank in other.ranks}))
        many = each.kind in ("host", "data") and 2 * len(joined) >= ranks and len(joined) > 2
        wider = replace(each, ranks=joined) if many else each
        if not any(_one(wider, other) and {*wider.ranks} <= {*other.ranks} for other in result):
            result.append(wider)
    return result


def _one(a: Culprit, b: Culprit) -> bool:
    overlap = min(a.last, b.last) - max(a.first, b.first) + 1
    shorter = min(a.last - a.first, b.last - b.first) + 1
    if a.kind != b.kind or overlap < shorter / 2:
        return False
    return a.kind in ("host", "data", "checkpoint", "link") and 0.5 < (1 + a.slower) / (1 + b.slower) < 2


def _confidence(errors: float) -> float:
    return 0.5 * (1 + erf(errors / sqrt(2)))
