"""The stage, replica, chunk and micro-batch of a recording's passes, on one clock, and pipeline metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...runs.errors import ClientError
from ...runs.query import StepChoice
from .analysis import Analysis
from .megascan_files import TimelineError
from .spans import PASSES, Bools, Floats, Integers, Spans, ranks_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pandas import DataFrame

    from ...runs.run import Run

_MOST_STAGES = 65_536
_MOST_MICRO_BATCHES = 1 << 20
_MOST_RANKS = 1 << 22
_MOSTLY = 0.5

PIPELINE_METRICS = (
    "iteration_ms", "compute_window_ms", "compute_ratio", "reduce_window_ms",
    "forward_send_window_ms", "backward_send_window_ms",
)  # fmt: skip
_MS = 1e-6
_ABSENT = -1

_Row = tuple[str, int, int, float]


def pipeline_metrics(run: Run, steps: StepChoice = None) -> DataFrame:
    """Return how busy the stages of a pipeline are and how long micro-batches wait between them, from spans
    of ``timeline="phases"`` or finer, or of an opened trace.

    Parameters
    ----------
    steps : optional
        As in :meth:`tensors`. Where there are several, the first of them is left out of the means: it warms
        up.

    Returns
    -------
    pandas.DataFrame
        ``metric``, ``rank``, ``peer``, ``value``; rank or peer is -1 where the metric is of none.
        ``iteration_ms``, then of each rank ``compute_window_ms`` (a pass), ``compute_ratio`` (the part of its
        step in passes), ``reduce_window_ms`` (from its last pass to the end of its step), then of each two
        neighbouring stages ``forward_send_window_ms``, ``backward_send_window_ms`` (from the end of a pass on
        ``rank`` to the beginning of the one that takes its output on ``peer``).

    Raises
    ------
    ClientError
        ``not-found`` where the run has no spans of a pipeline.
    """
    from pandas import DataFrame

    try:
        return DataFrame(span_metrics(Spans.of(run.table("spans", steps))))
    except TimelineError as error:
        raise ClientError(str(error), code="not-found") from error


def span_metrics(spans: Spans) -> dict[str, list[str] | list[int] | list[float]]:
    """Measure a pipeline, by the definitions of MegatronApp's ``profiling`` scripts.

    The first of several steps is left out: it warms up. Returns columns ``metric``, ``rank``, ``peer``,
    ``value``; -1 where a metric is of no rank or no pair, and no row where nothing was measured. Raises
    ``TimelineError`` where there is no pipeline: no passes of micro-batches, or one stage only.

    - ``iteration_ms``: from the first rank's beginning of a step to the last one's end, mean over steps.
    - ``compute_window_ms``: mean duration of a rank's passes.
    - ``compute_ratio``: the part of its step in which a rank is in passes, geometric mean over steps.
    - ``reduce_window_ms``: from the tick ``reduce``, or the end of the last pass, to the end of the step,
    mean.
    - ``forward_send_window_ms``, ``backward_send_window_ms``: from the end of a pass on ``rank`` to the begin
    of
      what takes its output on ``peer``, the next or previous virtual stage of the same step and micro-batch;
      mean over all, with the time in queues.
    """
    passes = pipeline_passes(Analysis(spans))
    if passes.stages < 2:
        raise TimelineError(
            "The spans are of one pipeline stage. Record a run of several, with megalens.trace(model, "
            "timeline='phases') on every rank, or open a trace that says stages (pp_rank)."
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
    step_rows = np.flatnonzero(spans.of_kind("step") & (spans.count == 1) & (spans.step >= first))
    mine = passes.rows[spans.step[passes.rows] >= first]
    began, ended = (
        _first(cell[step_rows], begin[step_rows], shape),
        _last(cell[step_rows], end[step_rows], shape),
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
            # A step that ends with its last pass was made up of passes: its true length is unknown.
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
    """Return a number for each step, replica, micro-batch and virtual stage, the last counting by one."""
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
    """Return which spans are MegatronApp's ticks, not a reduction of several ranks."""
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


@dataclass(frozen=True, eq=False)
class PipelinePasses:
    """Passes of micro-batches. Without stages every rank is a pipeline of one.

    Attributes
    ----------
    begin, end : numpy.ndarray
        Of all spans, ns on one clock, float64 ``[spans]``.
    ranks : numpy.ndarray
        Of each replica and stage, int64 ``[replicas, stages]``; -1 where there is none. Ranks of a stage are
        sorted, so that the first are the lowest data-parallel replica and tensor rank 0.
    rows : numpy.ndarray
        Spans that are a complete pass of a micro-batch, int64 ``[n]`` as all below.
    stage, replica, chunk, micro_batch, virtual : numpy.ndarray
        Of each; ``virtual`` is the virtual stage: its chunk's position on a micro-batch's way through all.
    chunks, micro_batches : int
        Of the model on each stage; of a step.
    placement : str
        ``loop``: every chunk begins at the first stage; ``v``: every second one runs back from the last.
    problems : tuple of str
        Sentences about what was left out.
    """

    spans: Spans
    begin: Floats
    end: Floats
    ranks: Integers
    rows: Integers
    stage: Integers
    replica: Integers
    chunk: Integers
    micro_batch: Integers
    virtual: Integers
    chunks: int
    micro_batches: int
    placement: str
    problems: tuple[str, ...]

    @property
    def stages(self) -> int:
        return int(self.ranks.shape[1])


def pipeline_passes(analysis: Analysis) -> PipelinePasses:
    """Find the passes of a pipeline.

    Raises ``TimelineError`` where no span is a pass of a micro-batch, and for implausibly many stages, chunks
    or micro-batches.
    """
    spans = analysis.spans
    rows = np.flatnonzero(spans.of_kind(*PASSES) & spans.complete_phases & (spans.count == 1))
    problems: list[str] = []
    micro_batch = spans.micro_batch[rows]
    if len(rows) and (micro_batch < 0).all():
        # Other tools do not number them.
        micro_batch = _by_order(spans, rows)
    known = micro_batch >= 0
    if not known.all():
        problems.append(f"{int((~known).sum())} passes do not say their micro-batch; they are left out.")
    ranks, stage_of, replica_of, more = _coordinates(spans)
    at = np.searchsorted(spans.ranks, spans.rank[rows])
    usable = known & (stage_of[at] >= 0)
    rows, at, micro_batch = rows[usable], at[usable], micro_batch[usable]
    if not len(rows):
        raise TimelineError(
            "The spans hold no forward or backward pass of a micro-batch. Record them with "
            "megalens.trace(model, timeline='phases') or run.configure(timeline='phases')."
        )
    stage, replica, chunk = stage_of[at], replica_of[at], np.maximum(spans.chunk[rows], 0)
    stages, chunks, count = ranks.shape[1], int(chunk.max()) + 1, int(micro_batch.max()) + 1
    if stages * chunks > _MOST_STAGES or count > _MOST_MICRO_BATCHES:
        raise TimelineError(
            f"A pipeline has at most {_MOST_STAGES} stages times chunks and {_MOST_MICRO_BATCHES} "
            f"micro-batches a step; these spans name {stages} × {chunks} and {count}."
        )
    begin, end, apart = _one_clock(analysis, ranks)
    forward = np.flatnonzero(spans.of_kind("forward", rows=rows) & (chunk % 2 == 1))
    key = np.stack([spans.step[rows], replica, micro_batch, chunk])[:, forward]
    falls = _falls(key, stage[forward], begin[rows[forward]])
    back = falls & (chunk % 2 == 1)
    virtual = chunk * stages + np.where(back, stages - 1 - stage, stage)
    return PipelinePasses(
        spans, begin, end, ranks, rows, stage, replica, chunk, micro_batch, virtual,
        chunks, count, "v" if falls else "loop", (*problems, *more, *apart),
    )  # fmt: skip


def _by_order(spans: Spans, rows: Integers) -> Integers:
    """Return numbers of passes by the order of each kind on a rank in a step and chunk."""
    columns = (spans.kind[rows], spans.chunk[rows], spans.step[rows], spans.rank[rows])
    order = np.lexsort((spans.start[rows], *columns))
    new = np.ones(len(rows), bool)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    number = np.empty(len(rows), np.int64)
    number[order] = np.arange(len(rows)) - np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    return number


def _coordinates(spans: Spans) -> tuple[Integers, Integers, Integers, list[str]]:
    """Return the ranks of each replica and stage, and each rank's stage and replica (-1: without a stage)."""
    stage = spans.stage[spans.first_rows].copy()
    if (stage < 0).all():
        stage[:] = 0
    if stage.max(initial=0) >= _MOST_STAGES:
        raise TimelineError(
            f"A pipeline has at most {_MOST_STAGES} stages; these spans name {int(stage.max()) + 1}."
        )
    problems = []
    outside = spans.ranks[stage < 0].tolist()
    if outside:
        problems.append(f"{ranks_text(outside).capitalize()} have no stage; they are left out.")
    order = np.argsort(stage, kind="stable")
    first = np.searchsorted(stage[order], stage[order], side="left")
    replica = np.empty(len(stage), np.int64)
    replica[order] = np.arange(len(stage)) - first
    inside = stage >= 0
    shape = (int(replica[inside].max(initial=0)) + 1, int(stage.max(initial=0)) + 1)
    if shape[0] * shape[1] > _MOST_RANKS:
        raise TimelineError(
            f"At most {_MOST_RANKS} ranks of pipelines are looked at; these spans name {shape[1]} stages of "
            f"up to {shape[0]} ranks."
        )
    ranks = np.full(shape, -1)
    ranks[replica[inside], stage[inside]] = spans.ranks[inside]
    missing = np.flatnonzero(ranks[0] < 0).tolist()
    if missing:
        text = ranks_text(missing).replace("rank", "stage", 1).capitalize()
        problems.append(f"{text} of the pipeline have no spans.")
    return ranks, stage, replica, problems


def _one_clock(analysis: Analysis, ranks: Integers) -> tuple[Floats, Floats, list[str]]:
    """Return begin and end of spans, ns, on one clock.

    Unconnected clocks are taken for one where the same steps coincide by them, as in a trace of all ranks;
    otherwise every rank begins its steps at once.
    """
    spans, clocks = analysis.spans, analysis.clocks
    begin, end = (clocks.aligned(spans.rank, each).astype(float) for each in (spans.start, spans.end))
    component = clocks.component[np.searchsorted(clocks.ranks, ranks[ranks >= 0])]
    if len(np.unique(component)) < 2:
        return begin, end, []
    step_rows = np.flatnonzero(spans.of_kind("step"))
    step = np.searchsorted(spans.steps, spans.step)
    first = np.full(len(spans.steps), -np.inf)
    last = np.full(len(spans.steps), np.inf)
    np.maximum.at(first, step[step_rows], begin[step_rows])
    np.minimum.at(last, step[step_rows], end[step_rows])
    if len(step_rows) and float((first < last).mean()) > _MOSTLY:
        return begin, end, []
    cell = np.searchsorted(spans.ranks, spans.rank) * len(spans.steps) + step
    zero = np.full(len(spans.ranks) * len(spans.steps), np.inf)
    of = step_rows if len(step_rows) else np.arange(len(spans))
    np.minimum.at(zero, cell[of], begin[of])
    # A step that a rank has no span of is on no clock.
    zero[np.isinf(zero)] = 0
    offsets = step * float((spans.end - spans.start).max() + 1)
    apart = ranks_text(np.unique(component).tolist())
    return (
        begin - zero[cell] + offsets,
        end - zero[cell] + offsets,
        [f"Nothing connects the clocks of {apart} and those with them: each begins its steps at 0."],
    )


def _falls(key: Integers, stage: Integers, begin: Floats) -> bool:
    """Return whether micro-batches run through odd chunks from the last stage to the first."""
    order = np.lexsort((stage, *key))
    same = (key[:, order][:, 1:] == key[:, order][:, :-1]).all(axis=0)
    same &= stage[order][1:] != stage[order][:-1]
    return bool(np.sign(np.diff(begin[order]))[same].sum() < 0)
