"""What each rank did itself in each step, without its waiting for others: what ranks can be compared by, whatever their clocks say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .spans import COMMUNICATION, PASSES, Floats, Integers, Spans

__all__ = ["Work", "enclosing", "work"]


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
        The step as a whole, with what it waited for before it began.
    compute : numpy.ndarray
        Passes and optimizer, without the collectives and messages in them.
    data, checkpoint : numpy.ndarray
        Waiting for a batch; saving.
    host : numpy.ndarray
        The rest: neither of these, nor blocked in communication.
    unit : numpy.ndarray or None
        The median layer's passes, where layers were recorded: comparable between stages.
    """

    ranks: Integers
    steps: Integers
    stage: Integers
    step: Floats
    compute: Floats
    data: Floats
    checkpoint: Floats
    host: Floats
    unit: Floats | None

    @property
    def ready(self) -> bool:
        """Whether any step of any rank is whole."""
        return bool(np.isfinite(self.step).any())


def work(spans: Spans) -> Work:
    """Split the steps of all ranks.

    Parameters
    ----------
    spans : Spans
        Of any granularity.
    """
    ranks, steps = spans.ranks, spans.steps
    cell = np.searchsorted(ranks, spans.rank) * len(steps) + np.searchsorted(steps, spans.step)
    long = (spans.end - spans.start).astype(float)
    blocked = spans.blocked.astype(float)

    def total(rows: Integers, values: Floats) -> Floats:
        sums = np.bincount(cell[rows], values[rows], len(ranks) * len(steps)).astype(float)
        return sums.reshape(len(ranks), len(steps))

    whole = spans.whole_phases
    of_kind = {kind: np.flatnonzero(spans.of_kind(kind) & whole) for kind in ("step", "data", "checkpoint")}
    phases = np.flatnonzero(spans.of_kind(*PASSES, "optimizer") & whole)
    traffic = np.flatnonzero(spans.of_kind(*COMMUNICATION))
    step, data, checkpoint = (total(of_kind[kind], long) for kind in ("step", "data", "checkpoint"))
    # Batches that came and what was saved since the step before are of this one, which waited for them.
    began = np.full(len(ranks) * len(steps), np.iinfo(np.int64).min)
    began[cell[of_kind["step"]]] = spans.start[of_kind["step"]]
    between = np.concatenate([of_kind["data"], of_kind["checkpoint"]])
    between = between[spans.start[between] < began[cell[between]]]
    step = np.where(step > 0, step + total(between, long), step)
    waiting = total(traffic, blocked)
    inside = traffic[enclosing(spans, traffic, phases) >= 0]
    summed = bool((spans.count[phases] > 1).any())
    # Sums do not say what lay in what: then all communication is taken for being in passes.
    compute = total(phases, long) - (waiting if summed else total(inside, blocked))
    host = step - compute - waiting - data - checkpoint
    absent = step == 0
    for values in (step, compute, data, checkpoint, host):
        values[absent] = np.nan
    stage = spans.stage[np.searchsorted(spans.rank, ranks)]
    return Work(
        ranks,
        steps,
        stage,
        step,
        np.maximum(compute, 1.0),
        data,
        checkpoint,
        np.maximum(host, 0.0),
        _unit(spans, cell, traffic, len(ranks), len(steps)),
    )


def enclosing(spans: Spans, inner: Integers, outer: Integers) -> Integers:
    """Return for each of some rows the place in ``outer`` of the row in which its blocked time lies, -1 where there is none. Outer rows of a rank lie beside each other."""
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
    """Return the median layer of each rank and step, forward and backward together, without communication; None where no layers were recorded."""
    layers = np.flatnonzero(~spans.whole_phases & spans.of_kind(*PASSES) & (spans.count == 1))
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
