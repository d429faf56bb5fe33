"""One clock for all ranks, from what must coincide.

A collective ends on all of its ranks at about the same time, and on none before the last of them came. So
each collective gives one equation for each pair of its ranks. For every rank an offset and a drift against a
reference are sought with which ends of the same collective coincide,

    t + offset + drift · (t - middle) = end of the collective,

by least squares over all collectives of all groups at once, each end weighted by its residual (Cauchy's
weights), as ends have a heavy tail. Intervals are those of the sandwich estimator over steps (White 1980,
Liang and Zeger 1986).

Ranks that declare one clock, those of one machine, are one unknown: a collective ended on their clock when
the first of them saw it.

Ranks that only messages connect are set by the fastest in each direction, as NTP does: half the difference of
the two shortest ways, uncertain by half their sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dependencies import NOT_BLOCKED_NS, Dependencies
from .spans import Floats, Integers, Spans, ranks_text

_ROUNDS = 6
_NORMAL = 1.96
_MAD = 1.4826
_LEAST_SCALE = 200.0
"""ns: the resolution of readings."""
_CLOSE = 20.0
"""ns: offsets that change by less have converged."""
_LIKELY_DRIFT = 1e5
"""ns/s (100 ppm): the assumed drift of a clock without evidence."""
_LEAST_JUMP = 1e6
_LEAST_SEEN = 3
"""Collectives of a group that all of its ranks saw end."""
_MOST_EVENTS = 1_000
"""Collectives of a group that are used, spread over the recording: more do not improve a clock."""


@dataclass(frozen=True, eq=False)
class Clocks:
    """Clocks of all ranks against a reference: the lowest rank of those that are connected.

    Attributes
    ----------
    ranks : numpy.ndarray
        All ranks, rising; int64 ``[ranks]``, as all below.
    clock : numpy.ndarray
        The lowest rank that reads the same clock.
    middle : numpy.ndarray
        ns of the rank's own clock from which its drift counts.
    offset_ns : numpy.ndarray
        What is added to a time at ``middle``; int64.
    drift : numpy.ndarray
        By how much a second of the rank is too short, float64: 5e-5 is 50 ppm.
    half_width_ns : numpy.ndarray
        95 % interval of the offset anywhere in the recording, float64. 0 of a reference.
    component : numpy.ndarray
        The reference of each rank. Ranks of two components cannot be compared.
    error_ns, tied : numpy.ndarray
        The half width without the uncertainty of messages, and the lowest rank that collectives connect it
        with: between ranks that are tied together only that counts.
    problems : tuple of str
        Sentences about ranks without a common clock, and clocks that jumped.
    """

    ranks: Integers
    clock: Integers
    middle: Integers
    offset_ns: Integers
    drift: Floats
    half_width_ns: Floats
    component: Integers
    error_ns: Floats
    tied: Integers
    problems: tuple[str, ...] = ()

    def between(self, indices: Any) -> float:
        """Return the possible error between some ranks' times, by index, ns; infinite if unconnected."""
        if len(np.unique(self.component[indices])) > 1:
            return float("inf")
        if len(np.unique(self.clock[indices])) == 1:
            return 0.0
        widths = self.error_ns if len(np.unique(self.tied[indices])) == 1 else self.half_width_ns
        return float(widths[indices].max())

    def aligned(self, rank: Integers, time: Integers) -> Integers:
        """Return times of ranks on the reference's clock, ns."""
        at = np.searchsorted(self.ranks, rank)
        since = time - self.middle[at]
        on_one: Integers = time + self.offset_ns[at] + np.rint(since * self.drift[at]).astype(np.int64)
        return on_one


@dataclass
class _GroupEnds:
    """Ends of one group's events: ns of each clock since its middle, and the alignment so far."""

    members: Integers
    """Indices of its clocks ``[k]``, each once."""
    step: Integers
    local: Floats
    """``[n, k]``"""
    slack: Floats
    """ns by which each event may be shifted on the second clock, for messages; 0 of collectives ``[n]``."""

    def before(self, jumps: Integers) -> _GroupEnds:
        """Return the events before a clock of theirs jumped."""
        usable = self.step < jumps[self.members].min()
        return _GroupEnds(self.members, self.step[usable], self.local[usable], self.slack[usable])


def clocks(found: Dependencies) -> Clocks:
    spans = found.spans
    ranks = spans.ranks
    clock = _clock_of(spans)
    # From here on indices are of clocks, each named by its lowest rank and sorted by it.
    heads = np.unique(clock, return_index=True)[1]
    count = len(heads)
    where = clock[np.searchsorted(ranks, spans.rank)]
    first, last = _extremes(spans, clock, count)
    middle = first + (last - first) // 2
    reach = (np.stack([first - middle, last - middle]) * 1e-9).astype(float)
    groups = list(_collectives(found, where, middle))
    others = list(_collectives(found, where, middle, seen=False))
    if len({*_connected(groups, count)}) > len({*_connected(groups + others, count)}):
        groups += others
    named = [ranks_text(ranks[clock == each].tolist()) for each in range(count)]
    jumps, problems = _jumps(groups, named)
    groups = [usable for usable in (each.before(jumps) for each in groups) if len(usable.step)]
    component = _connected(groups, count)
    pairs: list[_GroupEnds] = []
    offset, drift = np.zeros(count), np.zeros(count)
    for turn in range(3):
        # Which messages were the fastest shows only once drifts are known.
        pairs = list(_pairs(found, where, middle, offset, drift, component, jumps))
        if turn and not pairs:
            break
        _guess(groups + pairs, offset)
        offset, drift, error = _solve(groups + pairs, offset, drift, reach)
    components = _connected(groups + pairs, count)
    offset += middle[components] - middle
    half = error + _along(pairs, component, components)
    apart = sorted(set(components.tolist()) - {0})
    if apart:
        alone = ranks[np.isin(components[clock], apart)].tolist()
        problems.append(
            f"Nothing connects {ranks_text(alone)} with rank {int(ranks[0])}: their clocks are not "
            "calibrated, and times of both are not compared."
        )
    return Clocks(
        ranks,
        ranks[heads][clock],
        middle[clock],
        np.rint(offset).astype(np.int64)[clock],
        drift[clock] * 1e-9,
        half[clock],
        ranks[heads][components][clock],
        error[clock],
        ranks[heads][component][clock],
        tuple(problems),
    )


def _clock_of(spans: Spans) -> Integers:
    """Return each rank's clock number, counted by lowest rank; without a declared one its own."""
    begin = spans.first_rows
    if not len(begin):
        return begin
    declared = np.minimum.reduceat(spans.clock, begin)
    declared = np.where(declared == np.maximum.reduceat(spans.clock, begin), declared, 0)
    _, first, index = np.unique(declared, return_index=True, return_inverse=True)
    heads = np.where(declared > 0, first[index], np.arange(len(declared)))
    numbers: Integers = np.unique(heads, return_inverse=True)[1]
    return numbers


def _extremes(spans: Spans, clock: Integers, count: int) -> tuple[Integers, Integers]:
    # Rows are ordered by rank and start.
    begin = spans.first_rows
    ends = np.iinfo(np.int64)
    first, last = np.full(count, ends.max), np.full(count, ends.min)
    if len(begin):
        np.minimum.at(first, clock, spans.start[begin])
        np.maximum.at(last, clock, np.maximum.reduceat(spans.end, begin))
    return first, last


def _collectives(
    found: Dependencies, where: Integers, middle: Integers, seen: bool = True
) -> Iterator[_GroupEnds]:
    """Yield the ends of each group's collectives, of those that all of its ranks saw end, or of the others.

    Who works meanwhile sees an end late, unless it waits for it. A few that seem seen were late by chance.
    """
    spans = found.spans
    usable = np.flatnonzero(found.complete & found.mutual)
    for group in np.unique(found.group[usable]):
        events = usable[found.group[usable] == group]
        size = int(found.first[events[0] + 1] - found.first[events[0]])
        rows = found.rows[found.first[events][:, None] + np.arange(size)]
        # What was blocked at its end ended when it was seen to end.
        rows = rows[(spans.blocked[rows] > 0).all(axis=1)]
        blocked, long = spans.blocked[rows], spans.end[rows] - spans.start[rows]
        saw = ((blocked == long) | (blocked > NOT_BLOCKED_NS)).all(axis=1)
        saw &= saw.sum() >= _LEAST_SEEN
        rows = rows[saw == seen]
        if len(rows) > _MOST_EVENTS:
            rows = rows[np.linspace(0, len(rows) - 1, _MOST_EVENTS).astype(int)]
        if not len(rows):
            continue
        at = np.argsort(where[rows[0]], kind="stable")
        members, begin = np.unique(where[rows[0]][at], return_index=True)
        if len(members) > 1:
            step = spans.step[rows[:, 0]]
            order = np.argsort(step, kind="stable")
            # An end is late where the rank was woken late, and never early.
            ends = np.minimum.reduceat(spans.end[rows[:, at]], begin, axis=1)
            local = (ends - middle[members]).astype(float)
            yield _GroupEnds(members, step[order], local[order], np.zeros(len(rows)))


def _pairs(
    found: Dependencies,
    where: Integers,
    middle: Integers,
    offset: Floats,
    drift: Floats,
    component: Integers,
    jumps: Integers,
) -> Iterator[_GroupEnds]:
    """Yield, for each pair of clocks that messages alone connect, one event a step: the middle of both
    directions.

    At first, with no offsets, that is of the fastest messages. With offsets it is the median of those that
    were waited for, which does not depend on their number.
    """
    spans = found.spans
    events = np.flatnonzero(found.complete & found.message)
    if not len(events):
        return
    sent, received = found.rows[found.first[events]], found.rows[found.first[events] + 1]
    a, b = where[sent], where[received]
    apart = (component[a] != component[b]) & (spans.step[sent] < np.minimum(jumps[a], jumps[b]))
    sent, received, a, b = (each[apart] for each in (sent, received, a, b))
    if not len(sent):
        return
    low, high = np.minimum(a, b), np.maximum(a, b)
    leave = (spans.start[sent] - middle[a]).astype(float)
    arrive = (spans.end[received] - middle[b]).astype(float)
    # Of clocks as they are known so far only the drift matters: the offset is the same for all.
    delay = (arrive + drift[b] * arrive * 1e-9) - (leave + drift[a] * leave * 1e-9)
    step = spans.step[sent]
    known = bool(offset.any())
    ready = delay - spans.blocked[received]
    waited = (offset[a] - offset[b] > ready) if known else np.ones(len(a), bool)
    order = np.lexsort((delay, a > b, step, high, low))
    order = order[waited[order]]
    if not len(order):
        return
    keys = np.stack([low, high, step, (a > b).astype(np.int64)])[:, order]
    first = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
    size = np.diff(np.append(first, len(order)))
    best = order[first + (size - 1) // 2 if known else first]
    pair = low[best] * len(middle) + high[best]
    for each in np.unique(pair):
        mine = best[pair == each]
        there, back = mine[a[mine] < b[mine]], mine[a[mine] > b[mine]]
        steps, one, two = np.intersect1d(step[there], step[back], return_indices=True)
        if not len(steps):
            continue
        there, back = there[one], back[two]
        low_at, high_at = divmod(int(each), len(middle))
        # On the lower clock and on the higher, the same moment; drifts come back in.
        shift = (delay[there] - delay[back]) / 2
        at = leave[there]
        moved = at + drift[low_at] * at * 1e-9 + shift
        local = np.stack([at, moved / (1 + drift[high_at] * 1e-9)], axis=1)
        slack = np.abs(delay[there] + delay[back]) / 2
        yield _GroupEnds(np.array([low_at, high_at]), steps, local, slack)


def _connected(groups: list[_GroupEnds], count: int) -> Integers:
    """Return for each clock the lowest one that it is connected with."""
    root = np.arange(count)
    for _ in range(count):
        before = root.copy()
        for group in groups:
            root[group.members] = root[group.members].min()
        if (before == root).all():
            break
    return root


def _guess(groups: list[_GroupEnds], offset: Floats) -> None:
    """Set rough offsets along groups, so that the unknowns are small."""
    known = np.zeros(len(offset), bool)
    for start in range(len(offset)):
        if known[start]:
            continue
        known[start] = True
        offset[start] = 0.0
        grown = True
        while grown:
            grown = False
            for group in groups:
                inside = known[group.members]
                if inside.any() and not inside.all():
                    at = int(np.flatnonzero(inside)[0])
                    of = group.members[at]
                    apart = np.median(group.local[:, [at]] - group.local, axis=0)
                    new = group.members[~inside]
                    offset[new] = offset[of] + apart[~inside]
                    known[new] = grown = True


def _solve(
    groups: list[_GroupEnds], offset: Floats, drift: Floats, reach: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return offset, drift in ns/s, and half the 95 % interval of an offset within ``reach``: the first and
    last time of each clock, s since its middle.
    """
    count = len(offset)
    root = _connected(groups, count)
    # The reference of each component stays as it is.
    free = np.flatnonzero(root != np.arange(count))
    if not len(free):
        return offset.copy(), drift.copy(), np.zeros(count)
    try:
        return _solve_for(np.concatenate([free, count + free]), groups, offset, drift, reach)
    except np.linalg.LinAlgError:
        # Few events, days away from the middle, say nothing of a drift.
        return _solve_for(free, groups, offset, drift, reach)


def _solve_for(
    chosen: Integers, groups: list[_GroupEnds], offset: Floats, drift: Floats, reach: Floats
) -> tuple[Floats, Floats, Floats]:
    """Solve for the chosen of all offsets and, behind them, all drifts; the others stay."""
    count = len(offset)
    offset, drift = offset.copy(), drift.copy()
    scales: list[float] = []
    for turn in range(_ROUNDS):
        normal, right = np.zeros((2 * count, 2 * count)), np.zeros(2 * count)
        for at, group in enumerate(groups):
            weight, residual, seconds, scale = _weighted(group, offset, drift, scales[at] if turn else 0.0)
            if turn:
                scales[at] = scale
            else:
                scales.append(scale)
            _add(group.members, weight, residual, seconds, normal, right)
        normal[np.arange(count, 2 * count), np.arange(count, 2 * count)] += _LIKELY_DRIFT**-2
        right[count:] -= drift * _LIKELY_DRIFT**-2
        change = np.zeros(2 * count)
        change[chosen] = np.linalg.solve(normal[np.ix_(chosen, chosen)], right[chosen])
        offset += change[:count]
        drift += change[count:]
        if turn and np.abs(change[:count]).max() < _CLOSE:
            break
    return offset, drift, _half_widths(groups, scales, offset, drift, chosen, reach)


def _weighted(
    group: _GroupEnds, offset: Floats, drift: Floats, scale: float
) -> tuple[Floats, Floats, Floats, float]:
    """Return weights, residuals in ns and seconds since the middle, each ``[n, k]``, and the scale."""
    seconds = group.local * 1e-9
    aligned = group.local + offset[group.members] + drift[group.members] * seconds
    centre = np.median(aligned, axis=1, keepdims=True)
    residual = aligned - centre
    if len(group.members) == 2:
        # A median of two is their middle: half of what they differ by.
        spread = float(np.median(np.abs(residual - np.median(residual, axis=0))))
    else:
        spread = float(np.median(np.abs(residual)))
    scale = max(_MAD * spread, _LEAST_SCALE)
    weight = 1.0 / (1.0 + (residual / (2.0 * scale)) ** 2) / scale**2
    residual -= (weight * residual).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    return weight, residual, seconds, scale


def _add(
    members: Integers, weight: Floats, residual: Floats, seconds: Floats, normal: Floats, right: Floats
) -> None:
    """Add the equations of a group, in which each event's own time has been eliminated."""
    count = len(right) // 2
    share = weight / np.sqrt(weight.sum(axis=1, keepdims=True))
    timed = share * seconds
    o, d = members, count + members
    normal[np.ix_(o, o)] += np.diag(weight.sum(axis=0)) - share.T @ share
    cross = np.diag((weight * seconds).sum(axis=0)) - share.T @ timed
    normal[np.ix_(o, d)] += cross
    normal[np.ix_(d, o)] += cross.T
    normal[np.ix_(d, d)] += np.diag((weight * seconds**2).sum(axis=0)) - timed.T @ timed
    right[o] -= (weight * residual).sum(axis=0)
    right[d] -= (weight * residual * seconds).sum(axis=0)


def _half_widths(
    groups: list[_GroupEnds],
    scales: list[float],
    offset: Floats,
    drift: Floats,
    chosen: Integers,
    reach: Floats,
) -> Floats:
    count = len(offset)
    normal, right = np.zeros((2 * count, 2 * count)), np.zeros(2 * count)
    pulls: list[tuple[Integers, Floats]] = []
    for group, scale in zip(groups, scales, strict=True):
        weight, residual, seconds, _ = _weighted(group, offset, drift, scale)
        # The slope of what Cauchy's weights pull with is smaller than the weight.
        far = (residual / (2.0 * scale)) ** 2
        slope = float(((1 - far) / (1 + far) ** 2).mean() / (1 / (1 + far)).mean())
        _add(group.members, weight * max(slope, 0.2), residual, seconds, normal, right)
        # What happens in one step is not independent: one sum a step.
        begin = np.flatnonzero(np.diff(group.step, prepend=group.step[0] - 1))
        pull = np.hstack([weight * residual, weight * residual * seconds])
        steps = len(begin)
        pull = np.add.reduceat(pull, begin, axis=0) * np.sqrt(steps / max(steps - 2, 1))
        pulls.append((np.concatenate([group.members, count + group.members]), pull))
    normal[np.arange(count, 2 * count), np.arange(count, 2 * count)] += _LIKELY_DRIFT**-2
    bread = np.zeros((2 * count, 2 * count))
    bread[np.ix_(chosen, chosen)] = np.linalg.inv(normal[np.ix_(chosen, chosen)])
    # Only three diagonals of bread · pullsᵀ · pulls · bread are needed: sums over each step's pulls at every
    # rank.
    own, cross, rate = np.zeros(count), np.zeros(count), np.zeros(count)
    for where, pull in pulls:
        moved = pull @ bread[where]
        offsets, drifts = moved[:, :count], moved[:, count:]
        own += (offsets**2).sum(axis=0)
        cross += (offsets * drifts).sum(axis=0)
        rate += (drifts**2).sum(axis=0)
    widths = np.sqrt(np.maximum(own + 2 * reach * cross + reach**2 * rate, 0))
    return np.asarray(_NORMAL * widths.max(axis=0), np.float64)


def _along(pairs: list[_GroupEnds], component: Integers, components: Integers) -> Floats:
    """Return the possible shift of clocks that messages alone connect: the smallest sum of half ways, ns."""
    loose = np.where(component == components, 0.0, np.inf)
    for _ in range(len(components)):
        before = loose.copy()
        for pair in pairs:
            a, b = (np.flatnonzero(component == component[each]) for each in pair.members)
            slack = float(pair.slack.min())
            near = min(loose[a].min(), loose[b].min() + slack), min(loose[b].min(), loose[a].min() + slack)
            loose[a], loose[b] = near
        if (before == loose).all():
            break
    return np.where(np.isfinite(loose), loose, 0.0)


def _jumps(groups: list[_GroupEnds], named: list[str]) -> tuple[Integers, list[str]]:
    """Return for each clock the first step after it jumped, or a step that never comes, and a sentence about
    it.

    A clock's ends against the middle of its groups change from step to step by its drift; a jump is far more
    than that.
    """
    never = np.iinfo(np.int64).max
    jumps = np.full(len(named), never)
    problems: list[str] = []
    steps = np.unique(np.concatenate([each.step for each in groups])) if groups else np.arange(0)
    sums, counts = np.zeros((len(named), len(steps))), np.zeros((len(named), len(steps)))
    for group in groups:
        apart = group.local - np.median(group.local, axis=1, keepdims=True)
        at = np.searchsorted(steps, group.step)
        np.add.at(sums, (group.members[None, :], at[:, None]), apart)
        np.add.at(counts, (group.members[None, :], at[:, None]), 1)
    with np.errstate(invalid="ignore"):
        level = sums / counts
        change = np.abs(np.diff(level, axis=1))
        # What is back at the next step was one late end and no other clock.
        stays = np.abs(level[:, 2:] - level[:, :-2])
        change[:, :-1] = np.fmin(change[:, :-1], stays)
    if not np.isfinite(change).any():
        return jumps, problems
    bound = max(_LEAST_JUMP, 50 * float(np.nanmedian(change)))
    for clock in np.flatnonzero((np.nan_to_num(change) > bound).any(axis=1)):
        step = int(steps[1 + int(np.argmax(np.nan_to_num(change[clock]) > bound))])
        jumps[clock] = step
        problems.append(
            f"The clock of {named[clock]} jumps at step {step}; from there on its times are not compared."
        )
    return jumps, problems
