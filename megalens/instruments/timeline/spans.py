"""The rows of the stream ``spans`` as columns, and each rank's own work in each step, to compare ranks by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol.ranges import read_ranges

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

KINDS: tuple[str, ...] = ("step", "forward", "backward", "wgrad", "optimizer", "data", "checkpoint", "user")


@dataclass(frozen=True, eq=False)
class Work:
    """ns of each rank in each step, float64 ``[ranks, steps]``; NaN where a rank has no such step.

    Attributes
    ----------
    ranks, steps : numpy.ndarray
        Rising.
    stage : numpy.ndarray
        Of each rank; -1 where there are none.
    step : numpy.ndarray
        The complete step, with what it waited for before it began.
    compute : numpy.ndarray
        Passes and optimizer, without the collectives and messages in them.
    parts : numpy.ndarray
        The same by ``COMPUTING``, ``[parts, ranks, steps]``.
    data, checkpoint : numpy.ndarray
        Waiting for a batch; saving.
    host : numpy.ndarray
        The rest: neither of these, nor blocked in communication.
    paused : numpy.ndarray
        Evaluation and sample text; what of it lies in a step is no part of that.
    between : numpy.ndarray
        What no span covers between a step and the one before it, which is no part of either.
    user : numpy.ndarray
        The longest other span of the script's own, which may lie in all of these.
    user_name : numpy.ndarray
        Its name, an index into ``names``, int64 ``[ranks, steps]``.
    unit : numpy.ndarray or None
        The median layer's passes, where layers were recorded: comparable between stages.
    """

    ranks: Integers
    steps: Integers
    stage: Integers
    step: Floats
    compute: Floats
    parts: Floats
    data: Floats
    checkpoint: Floats
    host: Floats
    paused: Floats
    between: Floats
    user: Floats
    user_name: Integers
    names: Sequence[str]
    unit: Floats | None

    @property
    def ready(self) -> bool:
        """Whether any step of any rank is complete."""
        return bool(np.isfinite(self.step).any())


def work(spans: Spans) -> Work:
    ranks, steps = spans.ranks, spans.steps
    cell = np.searchsorted(ranks, spans.rank) * len(steps) + np.searchsorted(steps, spans.step)
    long = (spans.end - spans.start).astype(float)
    blocked = spans.blocked.astype(float)

    def total(rows: Integers, values: Floats) -> Floats:
        sums = np.bincount(cell[rows], values[rows], len(ranks) * len(steps)).astype(float)
        return sums.reshape(len(ranks), len(steps))

    outer = spans.complete_phases
    of_kind = {kind: np.flatnonzero(spans.of_kind(kind) & outer) for kind in ("step", "data", "checkpoint")}
    phases = np.flatnonzero(spans.of_kind(*COMPUTING) & outer)
    traffic = np.flatnonzero(spans.of_kind(*COMMUNICATION))
    step, data, checkpoint = (total(of_kind[kind], long) for kind in ("step", "data", "checkpoint"))
    # Batches that came and what was saved since the step before are of this one, which waited for them.
    began = np.full(len(ranks) * len(steps), np.iinfo(np.int64).min)
    began[cell[of_kind["step"]]] = spans.start[of_kind["step"]]
    between = np.concatenate([of_kind["data"], of_kind["checkpoint"]])
    between = between[spans.start[between] < began[cell[between]]]
    step = np.where(step > 0, step + total(between, long), step)
    pauses = np.flatnonzero(spans.of_kind("user") & np.isin(spans.name, spans.codes(PAUSES.values())))
    paused = total(pauses, long)
    own = np.setdiff1d(np.flatnonzero(spans.of_kind("user")), pauses)
    own = own[np.argsort(long[own], kind="stable")]
    user, user_name = np.zeros(step.size), np.zeros(step.size, np.int64)
    user[cell[own]], user_name[cell[own]] = long[own], spans.name[own]
    inside_step = pauses[spans.start[pauses] >= began[cell[pauses]]]
    step = np.where(step > 0, np.maximum(step - total(inside_step, long), 1.0), step)
    waiting = total(traffic, blocked)
    summed = bool((spans.count[phases] > 1).any())
    # Sums are not nested: all communication is taken for being in passes.
    around = enclosing(spans, traffic, phases)
    inside, owner = traffic[around >= 0], phases[around[around >= 0]]
    parts = []
    for kind in COMPUTING:
        mine, part = phases[spans.of_kind(kind, rows=phases)], inside[spans.of_kind(kind, rows=owner)]
        parts.append(total(mine, long) - total(part, blocked))
    compute = total(phases, long) - (waiting if summed else total(inside, blocked))
    host = step - compute - waiting - data - checkpoint
    absent = step == 0
    gap = _between(spans, began.reshape(step.shape), cell, of_kind["step"])
    gap = np.maximum(gap - total(np.concatenate([between, np.setdiff1d(pauses, inside_step)]), long), 0)
    for values in (step, compute, data, checkpoint, host, paused, gap):
        values[absent] = np.nan
    stage = spans.stage[np.searchsorted(spans.rank, ranks)]
    return Work(
        ranks,
        steps,
        stage,
        step,
        np.maximum(compute, 1.0),
        np.maximum(np.stack(parts), 0.0),
        data,
        checkpoint,
        np.maximum(host, 0.0),
        paused,
        gap,
        user.reshape(step.shape),
        user_name.reshape(step.shape),
        spans.names,
        _unit(spans, cell, traffic, len(ranks), len(steps)),
    )


def _between(spans: Spans, began: Integers, cell: Integers, rows: Integers) -> Floats:
    """Return the ns from the end of each step to the beginning of the next; 0 where one is not there."""
    ends = np.zeros(began.size, np.int64)
    ends[cell[rows]] = spans.end[rows]
    ended = ends.reshape(began.shape)
    follows = (spans.steps[1:] == spans.steps[:-1] + 1) & (began[:, 1:] > began[:, :-1]) & (ended[:, :-1] > 0)
    gap = np.zeros(began.shape)
    gap[:, 1:] = np.where(follows, (began[:, 1:] - ended[:, :-1]).astype(float), 0)
    return gap


def enclosing(spans: Spans, inner: Integers, outer: Integers) -> Integers:
    """Return each row's index in ``outer`` of the row around it, or -1; a rank's outer rows are adjacent."""
    if not len(outer) or not len(inner):
        return np.full(len(inner), -1)
    least = min(int(spans.start[outer].min()), int((spans.end - spans.blocked)[inner].min()))
    most = int(spans.end.max()) - least + 1
    if most >= 1 << 46:
        # Clocks that are hours apart: each rank from its own zero.
        zero = spans.start[spans.first_rows]
        zero = zero[np.searchsorted(spans.ranks, spans.rank)] - (1 << 40)
    else:
        zero = np.full(len(spans), least)
    begin = np.clip(spans.end - spans.blocked - zero, 0, (1 << 46) - 1)
    keys = spans.rank[outer] << 46 | np.clip(spans.start[outer] - zero[outer], 0, (1 << 46) - 1)
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], spans.rank[inner] << 46 | begin[inner], side="right") - 1
    found = order[np.maximum(at, 0)]
    fits = (at >= 0) & (spans.rank[outer[found]] == spans.rank[inner])
    fits &= spans.end[outer[found]] >= spans.end[inner]
    return np.where(fits, found, -1)


def _unit(spans: Spans, cell: Integers, traffic: Integers, ranks: int, steps: int) -> Floats | None:
    """Return the median layer of each rank and step, both passes without communication, if recorded."""
    layers = np.flatnonzero(~spans.complete_phases & spans.of_kind(*PASSES) & (spans.count == 1))
    if not len(layers):
        return None
    long = (spans.end - spans.start).astype(float)[layers]
    within = enclosing(spans, traffic, layers)
    long -= np.bincount(within[within >= 0], spans.blocked[traffic][within >= 0], len(layers))
    # Forward and backward are different work: each against its own usual duration.
    relative = np.empty(len(layers))
    for kind in np.unique(spans.kind[layers]):
        mine = spans.kind[layers] == kind
        relative[mine] = long[mine] / max(float(np.median(long[mine])), 1.0)
    order = np.lexsort((relative, cell[layers]))
    keys, values = cell[layers][order], relative[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    size = np.diff(np.append(first, len(keys)))
    unit = np.full(ranks * steps, np.nan)
    unit[keys[first]] = (values[first + (size - 1) // 2] + values[first + size // 2]) / 2
    return unit.reshape(ranks, steps)


KINDS += ("collective", "send", "receive")
PASSES = ("forward", "backward", "wgrad")
COMPUTING = (*PASSES, "optimizer")
COMMUNICATION = ("collective", "send", "receive")

_WITH_THE_PASS = ("reduce_gradients",)
"""Collectives that begin with a pass and need what it computes last: a rank's part is there at its end."""
PAUSES = {"eval": "evaluation", "generate": "sample text"}
"""Names of spans of passes that are no training, by their phase."""
_NUMBERS: tuple[str, ...] = ("step", "rank", "stage", "chunk", "micro_batch", "start", "end", "count")
_NUMBERS += ("blocked", "bytes", "peer", "sequence")
INFERRED = "micro-batch (not recorded)"
"""Name of messages that were not recorded, and follow from the passes of a pipeline."""
_LATER: tuple[str, ...] = ("clock",)
"""Numbers that older recordings lack; 0 there."""
_MOST_GROUP = 65_536


@dataclass(frozen=True, eq=False)
class Spans:
    """Spans of all ranks, ordered by rank and then by start, the longer first. Every column is int64 ``[n]``.

    Attributes
    ----------
    step, rank, stage, chunk, micro_batch, start, end, count, blocked, bytes, peer, sequence, clock
        As in the stream; times in ns of the rank's own clock.
    kind, name, group : numpy.ndarray
        Indices into ``KINDS``, ``names`` and ``groups``.
    problems : tuple of str
        Sentences about what was left out.
    """

    step: Integers
    rank: Integers
    stage: Integers
    chunk: Integers
    micro_batch: Integers
    start: Integers
    end: Integers
    count: Integers
    blocked: Integers
    bytes: Integers
    peer: Integers
    sequence: Integers
    clock: Integers
    kind: Integers
    name: Integers
    group: Integers
    names: Sequence[str]
    groups: Sequence[str]
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: pa.Table) -> Spans:
        """Return the spans of a table in any order; negative lengths and unknown kinds are a problem."""
        columns: dict[str, Any] = {name: np.zeros(len(table), np.int64) for name in _LATER}
        for name in (*_NUMBERS, *(each for each in _LATER if each in table.column_names)):
            columns[name] = table[name].to_numpy().astype(np.int64, copy=False)
        texts = {name: _codes(table[name]) for name in ("kind", "name", "group")}
        known = np.array([KINDS.index(kind) if kind in KINDS else -1 for kind in texts["kind"][1]] or [-1])
        columns["kind"] = known[texts["kind"][0]] if len(table) else texts["kind"][0]
        columns |= {name: texts[name][0] for name in ("name", "group")}
        problems = []
        backwards = columns["end"] < columns["start"]
        unknown = columns["kind"] < 0
        for wrong, what in ((backwards, "end before they begin"), (unknown, "are of an unknown kind")):
            if wrong.any():
                ranks = sorted({int(rank) for rank in columns["rank"][wrong]})
                problems.append(f"{int(wrong.sum())} spans of {ranks_text(ranks)} {what}; they are left out.")
        columns["blocked"] = np.clip(columns["blocked"], 0, columns["end"] - columns["start"])
        spans = cls(**columns, names=texts["name"][1], groups=texts["group"][1], problems=tuple(problems))
        if problems:
            spans = spans.take(np.flatnonzero(~(backwards | unknown)))
        order = _order(spans)
        return spans if (order[1:] > order[:-1]).all() else spans.take(order)

    def __len__(self) -> int:
        return len(self.step)

    def take(self, rows: Any) -> Spans:
        columns = (each.name for each in fields(self) if each.name not in ("names", "groups", "problems"))
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})

    def codes(self, names: Iterable[str]) -> list[int]:
        """Return the indices of some names."""
        wanted = {*names}
        return [code for code, name in enumerate(self.names) if name in wanted]

    def of_kind(self, *kinds: str, rows: Any = slice(None)) -> Bools:
        """Return which of some rows, or of all, are of these kinds."""
        wanted = np.zeros(len(KINDS), bool)
        wanted[[KINDS.index(kind) for kind in kinds]] = True
        found: Bools = wanted[self.kind[rows]]
        return found

    @cached_property
    def complete_phases(self) -> Bools:
        """Passes, optimizer steps and so on that are no layer or operation inside one, bool ``[n]``."""
        named = (
            np.array([bool(name) for name in self.names] or [False])[self.name] if len(self) else self.name
        )
        outer: Bools = ~(self.of_kind(*PASSES) & named.astype(bool))
        return outer

    @cached_property
    def arrival(self) -> Integers:
        """When a rank's part of a collective or message is there, ns of its own clock."""
        late = np.array([name in _WITH_THE_PASS for name in self.names] or [False])
        return np.where(late[self.name], self.end - self.blocked, self.start) if len(self) else self.start

    @cached_property
    def ranks(self) -> Integers:
        return np.unique(self.rank)

    @cached_property
    def first_rows(self) -> Integers:
        """Where the rows of each of the ``ranks`` begin."""
        return np.searchsorted(self.rank, self.ranks)

    @cached_property
    def steps(self) -> Integers:
        return np.unique(self.step)

    def members(self, group: int) -> list[int]:
        """Return the ranks of a group, rising; None where its text has none."""
        try:
            ranges = read_ranges(self.groups[group], "group") or ()
        except ValueError:
            return []
        if sum(last - first + 1 for first, last in ranges) > _MOST_GROUP:
            return []
        return [rank for first, last in ranges for rank in range(first, last + 1)]


def ranks_text(ranks: Sequence[int], one: str = "rank") -> str:
    """Return ``rank 5`` or ``ranks 1, 3, 5 and 9 more``."""
    shown = ", ".join(str(rank) for rank in ranks[:4])
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return f"{one}{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _codes(column: pa.ChunkedArray) -> tuple[Integers, list[str]]:
    column_ = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column_, pa.ChunkedArray):
        column_ = pa.concat_arrays(column_.chunks)
    if not pa.types.is_dictionary(column_.type):
        column_ = column_.dictionary_encode()
    return column_.indices.to_numpy(zero_copy_only=False).astype(np.int64), column_.dictionary.to_pylist()


def _order(spans: Spans) -> Integers:
    if not len(spans):
        return np.arange(0)
    # One key sorts much faster than three; where its bits do not suffice the three are sorted by.
    first = np.full(int(spans.rank.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, spans.rank, spans.start)
    since = spans.start - first[spans.rank]
    longest = -(spans.end - spans.start)
    if int(since.max()) < 1 << 46 and int(spans.rank.max()) < 1 << 17:
        order = np.argsort(spans.rank << 46 | since, kind="stable")
        key = (spans.rank << 46 | since)[order]
        if (key[1:] != key[:-1]).all():
            return order
    return np.lexsort((longest, spans.start, spans.rank))
