"""How busy the stages of a pipeline are, and how long micro-batches are on their way between them: what MegatronApp's scripts say of a trace, of any recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .analysis import Analysis
from .files.megascan_files import TimelineError
from .pipeline_passes import PipelinePasses, pipeline_passes
from .spans import Bools, Floats, Integers, Spans

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PIPELINE_METRICS", "pipeline_metrics"]

PIPELINE_METRICS = (
    "iteration_ms", "compute_window_ms", "compute_ratio", "reduce_window_ms",
    "forward_send_window_ms", "backward_send_window_ms",
)  # fmt: skip
_MS = 1e-6
_ABSENT = -1

_Row = tuple[str, int, int, float]


def pipeline_metrics(spans: Spans) -> dict[str, list[str] | list[int] | list[float]]:
    """Measure a pipeline, by the definitions of MegatronApp's ``profiling`` scripts. The first step is left out where there are several: it warms up.

    Parameters
    ----------
    spans : Spans
        Of all ranks.

    Returns
    -------
    dict
        Columns ``metric``, ``rank``, ``peer``, ``value``; -1 where a metric is of no rank or no pair. A metric of which nothing is there has no row.

        - ``iteration_ms``: from the first rank's beginning of a step to the last one's end, mean over steps.
        - ``compute_window_ms``: mean duration of a rank's passes.
        - ``compute_ratio``: the part of its step in which a rank is in passes, geometric mean over steps.
        - ``reduce_window_ms``: from the tick ``reduce``, and without one from the end of its last pass, to the end of the rank's step, mean over steps.
        - ``forward_send_window_ms``, ``backward_send_window_ms``: from the end of a pass on ``rank`` to the beginning of what takes its output on ``peer``, the next or previous virtual stage of the same step and micro-batch; mean over all. Waiting in line there is in it.

    Raises
    ------
    TimelineError
        Where there is no pipeline: no passes of micro-batches, or one stage only.
    """
    passes = pipeline_passes(Analysis(spans))
    if passes.stages < 2:
        raise TimelineError(
            "The spans are of one pipeline stage. Record a run of several, with megalens.trace(model, timeline='phases') on every rank, or open a trace that says stages (pp_rank)."
        )
    steps = np.unique(spans.step[passes.rows])
    first = int(steps[1 if len(steps) > 1 else 0])
    rows = [*_of_ranks(passes, first), *_sends(passes, first)]
    rows.sort(key=lambda row: (PIPELINE_METRICS.index(row[0]), row[1], row[2]))
    metric, rank, peer, value = zip(*rows, strict=True) if rows else ((), (), (), ())
    return {"metric": list(metric), "rank": list(rank), "peer": list(peer), "value": list(value)}


def _of_ranks(passes: PipelinePasses, first: int) -> Iterator[_Row]:
    spans, begin, end = passes.spans, passes.begin, passes.end
    ranks, steps = spans.ranks, spans.steps[spans.steps >= first]
    shape = (len(ranks), len(steps))
    cell = np.searchsorted(ranks, spans.rank) * shape[1] + np.searchsorted(steps, spans.step)
    whole = np.flatnonzero(spans.of_kind("step") & (spans.count == 1) & (spans.step >= first))
    mine = passes.rows[spans.step[passes.rows] >= first]
    began, ended = (
        _first(cell[whole], begin[whole], shape),
        _last(cell[whole], end[whole], shape),
    )
    busy = np.bincount(cell[mine], (end - begin)[mine], shape[0] * shape[1]).reshape(shape)
    count = np.bincount(cell[mine], minlength=shape[0] * shape[1]).reshape(shape)
    ticks = np.flatnonzero(_ticks(spans) & (spans.step >= first))
    tick = _first(cell[ticks], begin[ticks], shape)
    over = np.where(np.isfinite(tick), tick, _last(cell[mine], end[mine], shape))
    # Steps that every rank of the pipeline has.
    there = np.isfinite(began) & (count > 0)
    working = count.any(axis=1)
    complete = there[working].all(axis=0)
    if complete.any():
        span = ended[working][:, complete].max(axis=0) - began[working][:, complete].min(axis=0)
        yield "iteration_ms", _ABSENT, _ABSENT, float(span.mean()) * _MS
    for at in np.flatnonzero(working):
        rank, known = int(ranks[at]), there[at]
        yield "compute_window_ms", rank, _ABSENT, float(busy[at].sum() / count[at].sum()) * _MS
        if known.any():
            share = busy[at, known] / np.maximum(ended[at, known] - began[at, known], 1.0)
            yield "compute_ratio", rank, _ABSENT, float(np.exp(np.log(np.maximum(share, 1e-12)).mean()))
            rest = np.maximum(ended[at, known] - over[at, known], 0)
            # A step that ends with its last pass was made of its passes: nobody knows how long it was.
            if rest.any():
                yield "reduce_window_ms", rank, _ABSENT, float(rest.mean()) * _MS


def _sends(passes: PipelinePasses, first: int) -> Iterator[_Row]:
    spans = passes.spans
    recent = spans.step[passes.rows] >= first
    for kind, name, onwards in (
        ("forward", "forward_send_window_ms", 1),
        ("backward", "backward_send_window_ms", -1),
    ):
        of = np.flatnonzero(recent & spans.of_kind(kind, rows=passes.rows))
        if not len(of):
            continue
        key = _keys(passes, of)
        key, unique = np.unique(key, return_index=True)
        rows, stage = passes.rows[of[unique]], passes.stage[of[unique]]
        last = passes.stages * passes.chunks - 1
        virtual = passes.virtual[of[unique]]
        onward = virtual < last if onwards > 0 else virtual > 0
        at = np.minimum(np.searchsorted(key, key + onwards), len(key) - 1)
        # A chunk that turns around on its stage is not sent.
        sent = np.flatnonzero(onward & (key[at] == key + onwards) & (stage[at] != stage))
        taken = at[sent]
        window = passes.begin[rows[taken]] - passes.end[rows[sent]]
        ranks, count = spans.ranks, len(spans.ranks)
        ends = (np.searchsorted(ranks, spans.rank[rows[each]]) for each in (sent, taken))
        pair = next(ends) * count + next(ends)
        pairs, which = np.unique(pair, return_inverse=True)
        mean = np.bincount(which, window, len(pairs)) / np.maximum(np.bincount(which), 1)
        for code, value in zip(pairs.tolist(), mean.tolist(), strict=True):
            rank, peer = (int(ranks[at]) for at in divmod(code, count))
            yield name, rank, peer, value * _MS


def _keys(passes: PipelinePasses, of: Integers) -> Integers:
    """Return a number for each step, replica, micro-batch and virtual stage, the last of which counts by one."""
    steps = passes.spans.steps
    step = np.searchsorted(steps, passes.spans.step[passes.rows[of]])
    sizes = [len(steps), len(passes.ranks), passes.micro_batches, passes.stages * passes.chunks]
    if np.prod(sizes, dtype=float) > 2.0**62:
        raise TimelineError(
            "These are too many steps to look at together: choose some, such as steps=slice(0, 1000)."
        )
    keys: Integers = ((step * sizes[1] + passes.replica[of]) * sizes[2] + passes.micro_batch[of]) * sizes[
        3
    ] + passes.virtual[of]
    return keys


def _ticks(spans: Spans) -> Bools:
    """Return which spans are a tick of MegatronApp's: a reduction of several ranks is another thing."""
    named = np.array([each == "reduce" for each in spans.names] or [False])
    alone = np.array([each.isdigit() for each in spans.groups] or [False])
    found: Bools = named[spans.name] & alone[spans.group] & spans.of_kind("collective")
    return found


def _first(cell: Integers, values: Floats, shape: tuple[int, int]) -> Floats:
    found = np.full(shape[0] * shape[1], np.inf)
    np.minimum.at(found, cell, values)
    return found.reshape(shape)


def _last(cell: Integers, values: Floats, shape: tuple[int, int]) -> Floats:
    return -_first(cell, -values, shape)
