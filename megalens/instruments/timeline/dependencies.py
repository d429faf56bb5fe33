"""Which spans are one collective or one message: they coincide, and make ranks wait for each other.

Messages of a pipeline that were not recorded, from its passes: a micro-batch goes from stage to stage.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .spans import INFERRED, KINDS, Bools, Floats, Integers, Spans, ranks_text


def with_messages(spans: Spans) -> Spans:
    """Return spans with a send at the end of each pass, and a receive before the pass that needs its output.

    The receive lasts from the end of what the rank did before. The spans are returned as they are where
    messages were recorded, where there is one stage or several chunks, or where stages differ in ranks.
    """
    messages = spans.of_kind("send", "receive") & (spans.peer >= 0)
    rows = np.flatnonzero(
        spans.of_kind("forward", "backward")
        & spans.complete_phases
        & (spans.count == 1)
        & (spans.micro_batch >= 0)
        & (spans.stage >= 0)
    )
    if messages.any() or not len(rows) or int(spans.chunk[rows].max()) > 0:
        return spans
    stage_of = spans.stage[spans.first_rows]
    stages, sizes = np.unique(stage_of, return_counts=True)
    if len(stages) < 2 or len(np.unique(sizes)) > 1 or (stages != np.arange(len(stages))).any():
        return spans
    # Ranks of a stage in order: the first of each are one replica.
    ranks = spans.ranks[np.argsort(stage_of, kind="stable")].reshape(len(stages), -1)
    replica = np.empty(len(spans.ranks), np.int64)
    replica[np.searchsorted(spans.ranks, ranks)] = np.arange(ranks.shape[1])
    at = replica[np.searchsorted(spans.ranks, spans.rank[rows])]
    backward = spans.of_kind("backward", rows=rows).astype(np.int64)
    batches = int(spans.micro_batch[rows].max()) + 1
    number = np.searchsorted(spans.steps, spans.step[rows]) * batches + spans.micro_batch[rows]

    def keys(stage: Integers) -> Integers:
        key: Integers = ((number * 2 + backward) * len(stages) + stage) * ranks.shape[1] + at
        return key

    stage = spans.stage[rows]
    mine, onward = keys(stage), stage + 1 - 2 * backward
    order = np.argsort(mine, kind="stable")
    if len(np.unique(mine)) < len(mine) or len(stages) * ranks.size * (int(number.max()) + 1) > 1 << 60:
        return spans
    wanted = keys(np.clip(onward, 0, len(stages) - 1))
    found = order[np.minimum(np.searchsorted(mine[order], wanted), len(order) - 1)]
    inside = (onward >= 0) & (onward < len(stages)) & (mine[found] == wanted)
    sent, taken = np.flatnonzero(inside), found[inside]
    sends = _rows(spans, rows[sent], "send", spans.end[rows[sent]], spans.end[rows[sent]])
    until = spans.start[rows[taken]]
    receives = _rows(spans, rows[taken], "receive", np.minimum(_idle_since(spans)[rows[taken]], until), until)
    own, peer = rows[sent], rows[taken]
    sends = replace(sends, peer=spans.rank[peer], sequence=number[sent])
    receives = replace(receives, peer=spans.rank[own], sequence=number[sent])
    joined: Any = {
        each.name: np.concatenate([getattr(part, each.name) for part in (spans, receives, sends)])
        for each in fields(spans)
        if each.name not in ("names", "groups", "problems")
    }
    whole = replace(sends, **joined)
    # A receive before the pass that it begins with, a send behind its own.
    return whole.take(np.lexsort((-whole.end, whole.start, whole.rank)))


def _rows(spans: Spans, rows: Integers, kind: str, start: Integers, end: Integers) -> Spans:
    part = spans.take(rows)
    number = np.full(len(rows), KINDS.index(kind))
    name = np.full(len(rows), len(spans.names))
    blocked = end - start
    names = [*spans.names, INFERRED]
    return replace(part, kind=number, name=name, start=start, end=end, blocked=blocked, names=names)


def _idle_since(spans: Spans) -> Integers:
    """Return for each span the end of what its rank did before it in its step, or the beginning of that."""
    busy = ~spans.of_kind("step", "user") & spans.complete_phases
    first = spans.start[spans.first_rows][np.searchsorted(spans.ranks, spans.rank)]
    width = int((spans.end - first).max()) + 1
    offset = np.searchsorted(spans.ranks, spans.rank) * width - first
    # Steps begin before what is in them, and what was before their beginning is over then.
    until = np.where(busy, spans.end, np.where(spans.of_kind("step"), spans.start, first)) + offset
    before = np.maximum.accumulate(np.concatenate([[0], until[:-1]]))
    since: Integers = np.maximum(before - offset, first)
    return since


_ONE_SIDED = ("broadcast", "broadcast_buffers", "scatter", "reduce", "gather")
"""Collectives in which ranks wait for the root only, or along a tree that depends on the implementation."""
NOT_BLOCKED_NS = 50_000
"""What a wait takes for something that was done long before."""
_BITS = 40
_SEND, _RECEIVE = KINDS.index("send"), KINDS.index("receive")


@dataclass(frozen=True, eq=False)
class Dependencies:
    """Collectives and messages, the *events* of a recording.

    Attributes
    ----------
    spans : Spans
        Spans that are sums are in no event.
    event : numpy.ndarray
        For each span the number of its event, or -1; int64 ``[n]``.
    rows : numpy.ndarray
        Spans of events, event by event, in each by rank.
    first : numpy.ndarray
        Where each event begins in ``rows``, and their length at the end; int64 ``[events + 1]``.
    complete : numpy.ndarray
        Whether all of its ranks are there, each once; bool ``[events]``.
    message : numpy.ndarray
        Whether it is a message, whose rows are its send and its receive, in this order; bool ``[events]``.
    problems : tuple of str
        Sentences about what does not fit together.
    """

    spans: Spans
    event: Integers
    rows: Integers
    first: Integers
    complete: Bools
    message: Bools
    problems: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.complete)

    @cached_property
    def group(self) -> Integers:
        """The group of each event, an index into ``spans.groups``; int64 ``[events]``."""
        return self.spans.group[self.rows[self.first[:-1]]]

    @cached_property
    def step(self) -> Integers:
        """The step of each event; int64 ``[events]``."""
        return self.spans.step[self.rows[self.first[:-1]]]

    @cached_property
    def mutual(self) -> Bools:
        """Collectives in which every rank waits for the last of all; bool ``[events]``."""
        sided = np.array([name in _ONE_SIDED for name in self.spans.names] or [False])
        found: Bools = ~self.message & ~sided[self.spans.name[self.rows[self.first[:-1]]]]
        return found

    def waited(self, rows: Integers, begin: Floats, end: Floats) -> Bools:
        """Return which spans (-1: none) waited for the others of their events; bool as ``rows``.

        All but sends do, and those of a one-sided collective that ended before the last of its ranks came.
        ``begin`` and ``end`` are on one clock.
        """
        event = np.where(rows >= 0, self.event[rows], -1)
        known = event >= 0
        last = np.full(self.count + 1, -np.inf)
        np.maximum.at(last, event[known], begin[known])
        sided = np.append(~self.mutual & ~self.message, False)[event]
        waits: Bools = known & (self.spans.kind[rows] != _SEND) & (~sided | (end > last[event]))
        return waits

    def last(self, event: int, begin: Floats, until: float) -> int:
        """Return the span for which an event waited: the last sender that had begun."""
        members = self.of(event)
        senders = members[(self.spans.kind[members] != _RECEIVE) & (begin[members] < until)]
        return int(senders[int(begin[senders].argmax())]) if len(senders) else int(members[0])

    def of(self, event: int) -> Integers:
        return self.rows[self.first[event] : self.first[event + 1]]


def dependencies(spans: Spans, *, all_ranks: bool = True) -> Dependencies:
    """Find which spans of all ranks belong together.

    A collective is what has one name, group and sequence number; a message what rank a sent to b and b
    received from a with one number. Without numbers, the order in the step counts. ``all_ranks`` says whether
    a collective needs all ranks of its group; otherwise those that have any spans.
    """
    single = spans.count == 1
    collectives = np.flatnonzero(spans.of_kind("collective") & single)
    messages = np.flatnonzero(spans.of_kind("send", "receive") & (spans.peer >= 0) & single)
    kind, rank, peer = (column[messages] for column in (spans.kind, spans.rank, spans.peer))
    sent = kind == _SEND
    width = int(max(spans.rank.max(initial=0), spans.peer.max(initial=0))) + 1
    ends = np.where(sent, rank * width + peer, peer * width + rank)
    width = len(spans.groups) or 1
    what = spans.name[collectives] * width + spans.group[collectives]
    keys = np.concatenate(
        [
            _keys(spans, collectives, what, spans.rank[collectives]),
            _keys(spans, messages, ends, kind) | (1 << 62),
        ]
    )
    rows = np.concatenate([collectives, messages])
    # Of an event by rank; of a message the send before the receive.
    inside = np.concatenate([spans.rank[collectives], kind])
    order = np.lexsort((inside, keys))
    keys, rows = keys[order], rows[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.arange(0)
    message = keys[first] >= 1 << 62
    first = np.append(first, len(rows))
    size = np.diff(first)
    event = np.full(len(spans), -1)
    event[rows] = np.repeat(np.arange(len(size)), size)
    complete, problems = _complete(spans, rows, first, message, all_ranks)
    return Dependencies(spans, event, rows, first, complete, message, tuple(problems))


def _keys(spans: Spans, rows: Integers, what: Integers, whose: Integers) -> Integers:
    """Return one number for each event: what it is, and which of these."""
    _, code = np.unique(what, return_inverse=True)
    number = spans.sequence[rows].copy()
    without = np.flatnonzero(number < 0)
    if len(without):
        # The count of its kind on this rank in its step. Rows are in time order already.
        step, mine, of = spans.step[rows][without], whose[without], code[without]
        order = np.lexsort((of, mine, spans.rank[rows][without], step))
        columns = [column[order] for column in (step, spans.rank[rows][without], mine, of)]
        new = np.ones(len(order), bool)
        new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        began = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
        index = np.empty(len(order), np.int64)
        index[order] = np.arange(len(order)) - began
        number[without] = (1 << (_BITS - 1)) | step << 16 | np.minimum(index, 0xFFFF)
    keys: Integers = code.astype(np.int64) << _BITS | number & ((1 << _BITS) - 1)
    return keys


def _complete(
    spans: Spans, rows: Integers, first: Integers, message: Bools, all_ranks: bool
) -> tuple[Bools, list[str]]:
    size = np.diff(first)
    at = rows[first[:-1]]
    group = spans.group[at]
    members = {int(each): spans.members(int(each)) for each in np.unique(group[~message])}
    if not all_ranks:
        there = set(spans.ranks.tolist())
        members = {each: [rank for rank in ranks if rank in there] for each, ranks in members.items()}
    sizes = np.zeros(len(spans.groups) + 1, np.int64)
    for each, ranks in members.items():
        sizes[each] = len(ranks)
    complete = (size == np.where(message, 2, sizes[group])) & (size > 1)
    # Of a message both ends, of a collective each rank once and only ranks of the group.
    rank = spans.rank[rows]
    same = np.zeros(len(rows), bool)
    same[1:] = rank[1:] == rank[:-1]
    same[first[:-1]] = False
    twice = np.add.reduceat(same, first[:-1]) if len(at) else np.zeros(0, int)
    complete &= message | (twice == 0)
    ends = spans.kind[rows[np.minimum(first[:-1] + 1, len(rows) - 1)]] if len(at) else at
    complete &= ~message | ((spans.kind[at] == _SEND) & (ends == _RECEIVE))
    left = np.flatnonzero(complete & ~message)
    left = left[np.argsort(group[left], kind="stable")]
    bounds = np.flatnonzero(np.diff(group[left], prepend=-1, append=-1))
    for begin, end in pairwise(bounds):
        mine = left[begin:end]
        ranks = members[int(group[mine[0]])]
        complete[mine] = (rank[first[mine][:, None] + np.arange(len(ranks))] == ranks).all(axis=1)
    return complete, _problems(spans, rows, first, message, complete, members)


def _problems(
    spans: Spans,
    rows: Integers,
    first: Integers,
    message: Bools,
    complete: Bools,
    members: dict[int, list[int]],
) -> list[str]:
    """Describe what is incomplete, except groups of one, which nobody else could have seen."""
    problems: list[str] = []
    at = rows[first[:-1]]
    alone = int((~complete & message).sum())
    if alone:
        problems.append(
            f"{alone} of {int(message.sum())} messages have no other end in the recording; they are left out."
        )
    lacking: Counter[tuple[int, int]] = Counter()
    missing: dict[tuple[int, int], set[int]] = {}
    for number in np.flatnonzero(~complete & ~message):
        key = (int(spans.name[at[number]]), int(spans.group[at[number]]))
        if len(members[key[1]]) == 1:
            continue
        lacking[key] += 1
        if len(missing.setdefault(key, set())) < 64:
            there = set(spans.rank[rows[first[number] : first[number + 1]]].tolist())
            missing[key] |= set(members[key[1]]) - there
    for (name, group), count in lacking.items():
        text = spans.groups[group]
        if not text:
            problems.append(
                f"{count} × {spans.names[name]} do not say which ranks took part; they are left out."
            )
            continue
        who = sorted(missing[name, group])
        reason = f"lack {ranks_text(who)}" if who else "have ranks that are not of the group, or one twice"
        problems.append(f"{count} × {spans.names[name]} of {text} {reason}; they are left out.")
    return problems
