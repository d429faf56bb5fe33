"""Measured steps of a run's pipeline."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import PipelineStepsRequest, check_request, must_be
from ...runs.answers.selection import StreamRows, check_cancelled
from ...runs.errors import ClientError
from ...runs.query import Query
from .analysis import Analysis
from .megascan_files import TimelineError
from .pipeline_passes import PipelinePasses, pipeline_passes
from .spans import Bools, Integers, Spans
from .timeline_answer import MOST_ROWS, STREAM, step_counts

_STEPS = 10
_SPARE = 4
"""Steps read in addition to the answered ones: the newest may be incomplete."""

MOST_STEPS = 20
MOST_OPERATIONS = 200_000
_KINDS = np.array(["F", "B", "I", "W", "O"])
_FORWARD, _BACKWARD, _INPUT, _WEIGHT, _OPTIMIZER = range(5)
_MS = 1e-6


def complete_steps(passes: PipelinePasses, replica: int = 0) -> Integers:
    """Return the rising steps that are complete on every rank of a replica and have passes."""
    spans = passes.spans
    ranks = passes.ranks[replica][passes.ranks[replica] >= 0]
    step_rows = np.flatnonzero(spans.of_kind("step") & (spans.count == 1) & np.isin(spans.rank, ranks))
    worked = passes.rows[np.isin(spans.rank[passes.rows], ranks)]
    there = np.zeros((2, len(spans.steps), len(spans.ranks)), bool)
    for which, rows in enumerate((step_rows, worked)):
        there[
            which,
            np.searchsorted(spans.steps, spans.step[rows]),
            np.searchsorted(spans.ranks, spans.rank[rows]),
        ] = True
    steps: Integers = spans.steps[there.all(axis=0).sum(axis=1) == len(ranks)]
    return steps


def pipeline_steps(passes: PipelinePasses, steps: Integers, replica: int = 0) -> dict[str, Any]:
    """Return the operations of some steps as plain JSON, columns of one length ordered by step, stage and
    beginning.

    ``steps`` are some of :func:`complete_steps`; beyond 20, or 200,000 operations, the newest are taken. The
    answer has ``steps`` (each with its ``duration`` in ms), ``left`` (how many were left out), ``stages``,
    ``chunks``, ``micro_batches``, ``placement``, ``replicas``, ``replica``, ``ranks`` (of each stage) and
    ``operations``: ``step``, ``stage``, ``rank``, ``chunk``, ``virtual_stage``, ``kind`` (``F``, ``B``,
    ``I``: a backward pass without gradients of weights, ``W``: these, ``O``: optimizer), ``micro_batch``,
    ``begin_ms`` and ``end_ms`` since the first of the ranks began the step. Raises ``TimelineError`` where
    one step has too many operations.
    """
    spans, ranks = passes.spans, passes.ranks[replica]
    mine = np.isin(spans.rank, ranks[ranks >= 0])
    chosen = np.isin(spans.step, steps)
    # A pass is a row and its index among the passes; an optimizer step has no such index.
    index = np.full(len(spans), -1)
    index[passes.rows] = np.arange(len(passes.rows))
    wanted: Bools = (index >= 0) | (spans.of_kind("optimizer") & (spans.count == 1))
    rows = np.flatnonzero(mine & chosen & wanted)
    taken = _newest(spans.step[rows], steps)
    rows = rows[np.isin(spans.step[rows], taken)]
    step_rows = np.flatnonzero(mine & spans.of_kind("step") & (spans.count == 1) & np.isin(spans.step, taken))
    zero, over = np.full(len(taken), np.inf), np.full(len(taken), -np.inf)
    at = np.searchsorted(taken, spans.step[step_rows])
    np.minimum.at(zero, at, passes.begin[step_rows])
    np.maximum.at(over, at, passes.end[step_rows])
    stage_of = np.full(len(spans.ranks), -1)
    stage_of[np.searchsorted(spans.ranks, ranks[ranks >= 0])] = np.flatnonzero(ranks >= 0)
    stage = stage_of[np.searchsorted(spans.ranks, spans.rank[rows])]
    order = np.lexsort((passes.begin[rows], stage, spans.step[rows]))
    rows, stage = rows[order], stage[order]
    since, among = zero[np.searchsorted(taken, spans.step[rows])], index[rows]
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
    """Return the newest steps that an answer may have, rising."""
    count = np.bincount(np.searchsorted(steps, of), minlength=len(steps))[::-1]
    if len(count) and count[0] > MOST_OPERATIONS:
        raise TimelineError(
            f"Step {int(steps[-1])} has {int(count[0])} operations, and at most {MOST_OPERATIONS} are "
            "answered: record with timeline='phases', or fewer micro-batches."
        )
    fit = int((np.cumsum(count) <= MOST_OPERATIONS).sum())
    return steps[len(steps) - min(fit, MOST_STEPS) :]


def _kinds(passes: PipelinePasses, rows: Integers, among: Integers) -> Integers:
    spans = passes.spans
    kind = np.full(len(rows), _OPTIMIZER)
    for name, code in (("forward", _FORWARD), ("backward", _BACKWARD), ("wgrad", _WEIGHT)):
        kind[spans.of_kind(name, rows=rows)] = code
    key = np.stack([spans.step[rows], spans.rank[rows], passes.chunk[among], passes.micro_batch[among]])
    _, which = np.unique(key, axis=1, return_inverse=True)
    which = which.ravel()
    apart = np.zeros(int(which.max(initial=-1)) + 1, bool)
    apart[which[kind == _WEIGHT]] = True
    kind[(kind == _BACKWARD) & apart[which]] = _INPUT
    return kind


def read_pipeline(
    rows: StreamRows, request: Mapping[str, Any], key: object, cancelled: threading.Event
) -> dict[str, Any]:
    """Return operations of the newest complete steps, as :func:`pipeline_steps`, with ``steps_there`` and
    ``problems``.

    ``request`` may have ``first`` and ``last`` step, of which the newest 20 are answered (without them the
    newest 10), and ``replica``, from 0. Without spans the answer is ``{steps_there: None}``. ``key``
    identifies the rows; none are cached. Raises ``ProtocolError`` naming the wrong member, or ``not-found``
    without a complete step with passes.
    """
    asked = check_request(PipelineStepsRequest, request)
    first, last, replica = asked.get("first"), asked.get("last"), asked.get("replica")
    if first is not None and last is not None and last < first:
        raise must_be("last", f"a step from {first}, the first one", last, "last", "bad-parameter")
    counts = step_counts(rows, cancelled)
    if not counts:
        return {"steps_there": None}
    there = np.array(sorted(counts))
    wanted = there[(there >= (first or 0)) & ((last is None) | (there <= (last or 0)))]
    most = _STEPS if first is None and last is None else MOST_STEPS
    size = np.cumsum([counts[step] for step in wanted[::-1].tolist()])
    # The newest one is read whatever its size.
    read = max(min(most + _SPARE, int((size <= MOST_ROWS).sum())), 1)
    looked = wanted[-read:]
    if not len(looked):
        raise ClientError(
            f"No step from {first or 0} to {'the last' if last is None else last} has spans; there are "
            f"steps {there[0]} to {there[-1]}.",
            code="not-found",
        )
    batches = []
    for batch in rows.batches(STREAM, Query(first=int(looked[0]), last=int(looked[-1]))):
        check_cancelled(cancelled)
        batches.append(batch)
    try:
        passes = pipeline_passes(Analysis(Spans.of(pa.Table.from_batches(batches))))
        check_cancelled(cancelled)
        chosen = replica or 0
        if chosen >= len(passes.ranks):
            expected = f"less than {len(passes.ranks)}, the number of pipelines"
            raise must_be("replica", expected, chosen, "replica", "bad-parameter")
        complete = complete_steps(passes, chosen)
        if not len(complete):
            raise TimelineError(
                f"None of the steps {looked[0]} to {looked[-1]} is whole on every stage. Record "
                "timeline='phases' on every rank, and wait for a step to end."
            )
        found = pipeline_steps(passes, complete[-most:], chosen)
    except TimelineError as error:
        raise ClientError(str(error), code="not-found") from error
    if first is not None or last is not None:
        # All requested steps without the answered and the incomplete ones.
        found["left"] = len(wanted) - len(looked) + len(complete) - len(found["steps"])
    problems = [*passes.spans.problems, *passes.problems]
    return {"steps_there": [int(there[0]), int(there[-1])], **found, "problems": problems}
