"""Steps replayed through their dependencies with some durations changed, as without a culprit.

Each rank is a chain of its own work and of moments at which it is blocked in a collective or message. A
blocked rank continues once the parts of all whom it waits for are there and the transfer is done:

    done = when the last sender's part was there + transfer        (of a collective every rank is a sender)
    a rank continues at max(its own arrival, done)

Collectives of one group are done one after the other: a transfer begins when the one before is done.

What goes on while a rank works is two moments of it: one at which its part is there, one at which it waits.

Work and transfers are as measured; waiting follows. A replay without changes gives the measured step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .clocks import Clocks
from .dependencies import NOT_BLOCKED_NS, Dependencies
from .spans import COMMUNICATION, COMPUTING, KINDS, Bools, Floats, Integers, Spans

WORK_KINDS = ("compute", "data", "checkpoint", "host")
"""Kinds of a rank's own work that can be scaled."""
_PARTS = (*COMPUTING, "data", "checkpoint", "host")
"""What they consist of; a factor may be of one of these too."""
_SEND, _RECEIVE = KINDS.index("send"), KINDS.index("receive")
_END = -2
"""In place of an event: the end of the rank's step."""
_NOBODY = -1
_FIRST_BUCKET, _BUCKET = 1 << 20, 25 << 20
"""Bytes of DDP's first bucket, and of the others unless it is told otherwise."""


@dataclass(frozen=True)
class StepChanges:
    """What differs from the measured step.

    Attributes
    ----------
    work : mapping
        By rank and kind of ``WORK_KINDS``, or part of computing, the factor on its durations.
    links : mapping
        By the ranks of a message or collective, rising, the factor on its transfers.
    """

    work: Mapping[tuple[int, str], float] = field(default_factory=dict)
    links: Mapping[tuple[int, ...], float] = field(default_factory=dict)


@dataclass(frozen=True)
class _StepPieces:
    """A step's own work and waits, ordered by rank and time, ns since its beginning."""

    ranks: Integers
    rank: Integers
    """Index of each piece's rank ``[pieces]``, as all below."""
    own: Floats
    """Work by part ``[pieces, parts]``."""
    event: Integers
    sends: Integers
    """Whether the event waits for this moment: not for the receiver of a message."""
    waits: Integers
    """Whether the rank waits for the event: not the sender of a message, nor where a part is there."""
    blocked: Floats
    """How long it is blocked independently of the others."""
    late: Floats
    """Time from the event to the rank's continuation."""
    transfer: Mapping[int, float]
    before: Mapping[int, int]
    """The event of the same group that is done first, one after the other."""
    members: Mapping[int, tuple[int, ...]]
    lead: Floats
    """When each rank begins ``[ranks]``."""
    ns: float


class StepReplay:
    """Steps of a recording that can be replayed."""

    def __init__(self, found: Dependencies, clocks: Clocks) -> None:
        self._found, self._clocks = found, clocks
        self._made: dict[int, _StepPieces | None] = {}

    def duration(self, step: int, changes: StepChanges | None = None) -> float:
        """Return how long a step would take, ns; NaN where it does not exist."""
        made = self._step(step)
        return float("nan") if made is None else _play(made, changes or StepChanges())

    def measured(self, step: int) -> float:
        """Return the ns from the last rank's beginning of a step to the last end; NaN without the step."""
        made = self._step(step)
        return float("nan") if made is None else made.ns

    def _step(self, step: int) -> _StepPieces | None:
        if step not in self._made:
            self._made[step] = _pieces(self._found, self._clocks, step)
        return self._made[step]


def _pieces(found: Dependencies, clocks: Clocks, step: int) -> _StepPieces | None:
    spans = found.spans
    rows = np.flatnonzero((spans.step == step) & (spans.count == 1))
    step_rows = rows[spans.of_kind("step", rows=rows)]
    if not len(step_rows):
        return None
    ranks = spans.rank[step_rows]
    starts, ends = spans.start[step_rows].copy(), spans.end[step_rows]
    # A batch that was waited for since the step before, or a checkpoint, belongs to this one.
    before = rows[spans.of_kind("data", "checkpoint", rows=rows) & np.isin(spans.rank[rows], ranks)]
    np.minimum.at(starts, np.searchsorted(ranks, spans.rank[before]), spans.start[before])
    moments = _moments(found, rows, ranks, starts, ends)
    rank, row, event = moments.rank, moments.row, moments.event
    # Work begins where the rank continued and ends where it waits.
    width = int((ends - starts).max()) + 1
    passed = np.maximum.accumulate(rank * width + moments.went - starts[rank])
    new = np.concatenate([[True], rank[1:] != rank[:-1]])
    since = starts[rank] + np.where(new, 0, np.concatenate([[0], passed[:-1]]) - rank * width)
    came = np.maximum(moments.came, since)
    went = np.maximum(moments.went, came)
    own = _split(spans, rows, ranks, rank, starts, since, came)
    zero = int(clocks.aligned(ranks, starts).max())

    def on_one(times: Integers) -> Floats:
        aligned: Floats = (clocks.aligned(ranks[rank], times) - zero).astype(float)
        return aligned

    at, on = on_one(came), on_one(went)
    known = event >= 0
    awaiting = moments.waits & found.waited(row, on_one(np.maximum(spans.arrival[row], starts[rank])), on)
    done, transfer, before = _transfers(found, event, at, on, moments.sends, awaiting, spans.bytes[row])
    ready = np.full(len(event), -np.inf)
    ready[known] = done[event[known] % max(found.count, 1)]
    waited = awaiting & (ready > at)
    late = np.where(waited, np.maximum(on - np.where(waited, ready, 0), 0), 0)
    blocked = np.where(waited, 0, on - at)
    numbers = np.unique(event[known])
    return _StepPieces(
        ranks,
        rank,
        own,
        event,
        moments.sends.astype(np.int64),
        awaiting.astype(np.int64),
        blocked,
        late,
        {int(each): float(transfer[each]) for each in numbers},
        {int(each): int(before[each]) for each in numbers},
        {
            each: tuple(sorted({*spans.rank[found.of(each % found.count)].tolist()}))
            for each in numbers.tolist()
        },
        (clocks.aligned(ranks, starts) - zero).astype(float),
        float(clocks.aligned(ranks, ends).max() - zero),
    )


@dataclass(frozen=True)
class _Moments:
    """When ranks give their parts to events or wait for them, and their steps end; by rank and time."""

    rank: Integers
    """Index of its rank ``[moments]``, as all below."""
    row: Integers
    """Of the span, -1 at the end of a step."""
    event: Integers
    came: Integers
    went: Integers
    """ns of the rank's own clock."""
    sends: Bools
    waits: Bools


def _moments(
    found: Dependencies, rows: Integers, ranks: Integers, starts: Integers, ends: Integers
) -> _Moments:
    spans = found.spans
    traffic = rows[spans.of_kind(*COMMUNICATION, rows=rows) & np.isin(spans.rank[rows], ranks)]
    index = np.searchsorted(ranks, spans.rank[traffic])
    wait, end = spans.end[traffic] - spans.blocked[traffic], spans.end[traffic]
    inside = (wait >= starts[index]) & (end <= ends[index])
    traffic, index, wait, end = (each[inside] for each in (traffic, index, wait, end))
    event = _events(found, traffic)
    kind = spans.kind[traffic]
    sends = (event >= 0) & (kind != _RECEIVE)
    there = np.where(sends, np.maximum(spans.arrival[traffic], starts[index]), wait)
    # A send that blocks nobody is over at once.
    over = (kind == _SEND) & (spans.blocked[traffic] == 0) & sends
    wait, end = np.where(over, there, wait), np.where(over, there, end)
    early = np.flatnonzero(there < wait)
    # Of what begins with a pass the first large bucket is an event of its own.
    begins = spans.arrival[traffic] > spans.start[traffic]
    begins &= sends & (spans.bytes[traffic] > _FIRST_BUCKET + _BUCKET)
    bucket = np.flatnonzero(begins & (spans.start[traffic] >= starts[index]))
    count, steps = len(traffic), np.arange(len(ranks))
    at = np.concatenate([early, bucket, np.arange(count)])
    first = np.arange(len(at)) < len(early) + len(bucket)
    apart = np.isin(at, early)
    share = (_FIRST_BUCKET + _BUCKET) / spans.bytes[traffic[bucket]]
    filled = spans.start[traffic[bucket]] + share * (there - spans.start[traffic])[bucket]
    there = np.concatenate([there[early], filled.astype(np.int64), wait])
    event = event[at]
    event[len(early) : len(early) + len(bucket)] += found.count
    nobody = np.zeros(len(ranks), bool)
    columns = (
        np.concatenate([index[at], steps]),
        np.concatenate([traffic[at], np.full(len(ranks), -1)]),
        np.concatenate([event, np.full(len(ranks), _END)]),
        np.concatenate([there, ends]),
        np.concatenate([np.where(first, there, end[at]), ends]),
        np.concatenate([sends[at] & (first | ~apart), nobody]),
        np.concatenate([(event >= 0) & ~first, nobody]),
    )
    order = np.lexsort((columns[3], columns[1] < 0, columns[0]))
    return _Moments(*(column[order] for column in columns))


def _events(found: Dependencies, row: Integers) -> Integers:
    """Return the event of each span where all of its spans are in this step."""
    event = found.event[row]
    known = event[event >= 0]
    here = np.bincount(known, minlength=found.count) == np.diff(found.first)
    event[event >= 0] = np.where((here & found.complete)[known], known, _NOBODY)
    return event


def _split(
    spans: Spans,
    rows: Integers,
    ranks: Integers,
    rank: Integers,
    starts: Integers,
    since: Integers,
    until: Integers,
) -> Floats:
    """Return how much of each interval is of which part of the work, ns ``[pieces, parts]``."""
    own = np.zeros((len(rank), len(_PARTS)))
    step = int((until - starts[rank]).max(initial=0)) + 1
    for column, kind in enumerate(_PARTS[:-1]):
        mine = rows[spans.of_kind(kind, rows=rows) & spans.complete_phases[rows]]
        mine = mine[np.isin(spans.rank[mine], ranks)]
        index = np.searchsorted(ranks, spans.rank[mine])
        begin = index * step + np.clip(spans.start[mine] - starts[index], 0, step - 1)
        long = np.minimum(spans.end[mine] - starts[index], step - 1) - (begin - index * step)
        before = np.concatenate([[0], np.cumsum(np.maximum(long, 0))])

        def covered(
            times: Integers, begin: Integers = begin, before: Integers = before, long: Integers = long
        ) -> Integers:
            # Phases of a rank are adjacent: all that begin before, of the last only a part.
            key = rank * step + (times - starts[rank])
            at = np.searchsorted(begin, key, side="right") - 1
            if not len(begin):
                return np.zeros(len(times), np.int64)
            last = np.maximum(at, 0)
            part = before[last] + np.clip(key - begin[last], 0, np.maximum(long[last], 0))
            return np.where(at < 0, 0, part)

        own[:, column] = covered(until) - covered(since)
    own[:, -1] = np.maximum(until - since - own.sum(axis=1), 0)
    return own


def _transfers(
    found: Dependencies, event: Integers, at: Floats, on: Floats, sends: Bools, waits: Bools, size: Integers
) -> tuple[Floats, Floats, Integers]:
    """Return when each event was done, how long its transfer took, and the event before it in its group.

    Who came before the last part, or was blocked, saw when it was done. Where nobody did, it took at most
    until somebody continued, and probably as long as others of its size.
    """
    count = found.count
    begun, until = np.full(2 * count, -np.inf), np.full(count, np.inf)
    np.maximum.at(begun, event[sends], at[sends])
    begun, filled = begun[:count], begun[count:]
    np.minimum.at(until, event[waits], on[waits])
    there = np.isfinite(begun) & np.isfinite(until)
    until = np.where(there, np.maximum(until, begun), until)
    seen = np.zeros(count, bool)
    saw = np.flatnonzero(waits)
    first = on[saw] <= until[event[saw]]
    seen[event[saw[(at[saw] <= begun[event[saw]]) | (first & (on[saw] - at[saw] > NOT_BLOCKED_NS))]]] = True
    sizes = np.zeros(count, np.int64)
    sizes[event[saw]] = size[saw]
    before = np.full(count, _NOBODY)
    several = np.flatnonzero(there & ~found.message)
    # In the order in which the first of their ranks issues them.
    head = found.rows[found.first[several]]
    several = several[np.lexsort((head, found.spans.arrival[head], found.group[several]))]
    follows = found.group[several[1:]] == found.group[several[:-1]]
    before[several[1:][follows]] = several[:-1][follows]
    transfer, done = np.zeros(count), np.where(seen & there, until, begun)
    # Once with what was seen alone, then with what the others probably took.
    for _ in range(2):
        since = np.where(before >= 0, np.maximum(begun, done[before]), begun)
        transfer[there] = np.maximum(until[there] - since[there], 0)
        for each in np.unique(sizes[there & ~seen]):
            like = transfer[there & seen & (sizes == each)]
            usual = float(np.median(like)) if len(like) else 0.0
            mine = there & ~seen & (sizes == each)
            transfer[mine] = np.minimum(transfer[mine], usual)
        done[there] = np.minimum(since[there] + transfer[there], until[there])
    # A bucket is moved once it is full and the one before was: the last, or all from the first on, says when.
    split = np.flatnonzero(there & np.isfinite(filled))
    last = (sizes[split] - _FIRST_BUCKET - 1) % _BUCKET + 1
    whole = done[split] - np.maximum(
        filled[split], np.where(before[split] >= 0, done[before[split]], -np.inf)
    )
    whole = np.minimum(whole, (done[split] - begun[split]) * sizes[split] / last)
    rest = np.zeros(count)
    transfer[split] = whole * last / sizes[split]
    rest[split] = whole - transfer[split]
    earlier = np.full(count, _NOBODY)
    earlier[split], before[split] = before[split], split + count
    return done, np.append(transfer, rest), np.append(before, earlier)


def _play(step: _StepPieces, changes: StepChanges) -> float:
    factor = np.ones((len(step.ranks), len(_PARTS)))
    for (rank, kind), value in changes.work.items():
        for part in COMPUTING if kind == "compute" else (kind,):
            factor[step.ranks == rank, _PARTS.index(part)] *= value
    work = (step.own * factor[step.rank]).sum(axis=1).tolist()
    event, sends, waits, blocked, late = (
        column.tolist() for column in (step.event, step.sends, step.waits, step.blocked, step.late)
    )
    awaited = np.bincount(step.event[step.sends > 0], minlength=1).tolist()
    begun = [-np.inf] * len(awaited)
    done: dict[int, float] = {}
    asleep: dict[int, list[tuple[int, int]]] = {}
    now = step.lead.tolist()
    # Runnable ranks, each with its next piece; blocked ones are woken by their event.
    runnable = list(enumerate(np.searchsorted(step.rank, np.arange(len(now))).tolist()))
    while runnable:
        rank, at = runnable.pop()
        time = now[rank] + work[at]
        mine = event[at]
        while mine != _END:
            if sends[at]:
                begun[mine] = max(begun[mine], time)
                awaited[mine] -= 1
                if not awaited[mine]:
                    factor_of = changes.links.get(step.members[mine], 1.0)
                    first = done.get(step.before[mine], begun[mine])
                    done[mine] = max(begun[mine], first) + step.transfer[mine] * factor_of
                    for other, piece in asleep.pop(mine, ()):
                        now[other] = max(now[other] + blocked[piece], done[mine] + late[piece])
                        runnable.append((other, piece + 1))
            if waits[at] and mine not in done:
                now[rank] = time
                asleep.setdefault(mine, []).append((rank, at))
                break
            time += blocked[at]
            if waits[at]:
                time = max(time, done[mine] + late[at])
            at += 1
            time += work[at]
            mine = event[at]
        now[rank] = time
    return float(max(now))
