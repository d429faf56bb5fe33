"""Steps of one pipeline as they were measured: what each stage did when, as a planner's schedule says it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .files.megascan_files import TimelineError
from .pipeline_passes import PipelinePasses
from .spans import Bools, Integers

__all__ = ["MOST_OPERATIONS", "MOST_STEPS", "pipeline_steps", "whole_steps"]

MOST_STEPS = 20
MOST_OPERATIONS = 200_000
_KINDS = np.array(["F", "B", "I", "W", "O"])
_FORWARD, _BACKWARD, _INPUT, _WEIGHT, _OPTIMIZER = range(5)
_MS = 1e-6


def whole_steps(passes: PipelinePasses, replica: int = 0) -> Integers:
    """Return the steps that every rank of a replica has whole, with passes in them, rising."""
    spans = passes.spans
    ranks = passes.ranks[replica][passes.ranks[replica] >= 0]
    whole = np.flatnonzero(spans.of_kind("step") & (spans.count == 1) & np.isin(spans.rank, ranks))
    worked = passes.rows[np.isin(spans.rank[passes.rows], ranks)]
    there = np.zeros((2, len(spans.steps), len(spans.ranks)), bool)
    for which, rows in enumerate((whole, worked)):
        there[
            which,
            np.searchsorted(spans.steps, spans.step[rows]),
            np.searchsorted(spans.ranks, spans.rank[rows]),
        ] = True
    steps: Integers = spans.steps[there.all(axis=0).sum(axis=1) == len(ranks)]
    return steps


def pipeline_steps(passes: PipelinePasses, steps: Integers, replica: int = 0) -> dict[str, Any]:
    """Return the operations of some steps as plain JSON, columns of one length ordered by step, stage and beginning.

    Parameters
    ----------
    passes : PipelinePasses
    steps : numpy.ndarray
        Some of :func:`whole_steps`, rising. Of more than 20, or than have 200,000 operations, the newest are taken.
    replica : int
        Which pipeline: the how-manieth rank of each stage.

    Returns
    -------
    dict
        ``steps`` (each with its ``duration`` in ms), ``left`` (how many were left out), ``stages``, ``chunks``, ``micro_batches``, ``placement``, ``replicas``, ``replica``, ``ranks`` (of each stage) and ``operations``: ``step``, ``stage``, ``rank``, ``chunk``, ``virtual_stage``, ``kind`` (``F``, ``B``, ``I``: a backward pass whose gradients of weights come apart, ``W``: these, ``O``: optimizer), ``micro_batch``, ``begin_ms`` and ``end_ms`` since the first of the ranks began the step.

    Raises
    ------
    TimelineError
        Where one step has more operations than an answer may.
    """
    spans, ranks = passes.spans, passes.ranks[replica]
    mine = np.isin(spans.rank, ranks[ranks >= 0])
    chosen = np.isin(spans.step, steps)
    # A pass is a row and its place among the passes; an optimizer step has no such place.
    place = np.full(len(spans), -1)
    place[passes.rows] = np.arange(len(passes.rows))
    wanted: Bools = (place >= 0) | (spans.of_kind("optimizer") & (spans.count == 1))
    rows = np.flatnonzero(mine & chosen & wanted)
    taken = _newest(spans.step[rows], steps)
    rows = rows[np.isin(spans.step[rows], taken)]
    whole = np.flatnonzero(mine & spans.of_kind("step") & (spans.count == 1) & np.isin(spans.step, taken))
    zero, over = np.full(len(taken), np.inf), np.full(len(taken), -np.inf)
    at = np.searchsorted(taken, spans.step[whole])
    np.minimum.at(zero, at, passes.begin[whole])
    np.maximum.at(over, at, passes.end[whole])
    stage_of = np.full(len(spans.ranks), -1)
    stage_of[np.searchsorted(spans.ranks, ranks[ranks >= 0])] = np.flatnonzero(ranks >= 0)
    stage = stage_of[np.searchsorted(spans.ranks, spans.rank[rows])]
    order = np.lexsort((passes.begin[rows], stage, spans.step[rows]))
    rows, stage = rows[order], stage[order]
    since, among = zero[np.searchsorted(taken, spans.step[rows])], place[rows]
    is_pass = among >= 0
    columns = {
        name: np.where(is_pass, getattr(passes, of)[among], -1).tolist()
        for name, of in (("chunk", "chunk"), ("virtual_stage", "virtual"), ("micro_batch", "micro_batch"))
    }
    return {
        "steps": [
            {"step": step, "duration": round(long * _MS, 6)}
            for step, long in zip(taken.tolist(), (over - zero).tolist(), strict=True)
        ],
        "left": len(steps) - len(taken),
        "stages": passes.stages,
        "chunks": passes.chunks,
        "micro_batches": passes.micro_batches,
        "placement": passes.placement,
        "replicas": len(passes.ranks),
        "replica": replica,
        "ranks": ranks.tolist(),
        "operations": {
            "step": spans.step[rows].tolist(),
            "stage": stage.tolist(),
            "rank": spans.rank[rows].tolist(),
            **columns,
            "kind": _KINDS[_kinds(passes, rows, among)].tolist(),
            "begin_ms": np.round((passes.begin[rows] - since) * _MS, 6).tolist(),
            "end_ms": np.round((passes.end[rows] - since) * _MS, 6).tolist(),
        },
    }


def _newest(of: Integers, steps: Integers) -> Integers:
    """Return the newest steps that an answer may hold, rising."""
    count = np.bincount(np.searchsorted(steps, of), minlength=len(steps))[::-1]
    if len(count) and count[0] > MOST_OPERATIONS:
        raise TimelineError(
            f"Step {int(steps[-1])} has {int(count[0])} operations, and at most {MOST_OPERATIONS} are answered: record with timeline='phases', or fewer micro-batches."
        )
    fit = int((np.cumsum(count) <= MOST_OPERATIONS).sum())
    return steps[len(steps) - min(fit, MOST_STEPS) :]


def _kinds(passes: PipelinePasses, rows: Integers, among: Integers) -> Integers:
    spans = passes.spans
    kind = np.full(len(rows), _OPTIMIZER)
    for name, place in (("forward", _FORWARD), ("backward", _BACKWARD), ("wgrad", _WEIGHT)):
        kind[spans.of_kind(name, rows=rows)] = place
    key = np.stack([spans.step[rows], spans.rank[rows], passes.chunk[among], passes.micro_batch[among]])
    _, which = np.unique(key, axis=1, return_inverse=True)
    which = which.ravel()
    apart = np.zeros(int(which.max(initial=-1)) + 1, bool)
    apart[which[kind == _WEIGHT]] = True
    kind[(kind == _BACKWARD) & apart[which]] = _INPUT
    return kind
