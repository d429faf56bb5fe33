"""Which passes of a recording are of which stage, replica, chunk and micro-batch of a pipeline, on one clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .analysis import Analysis
from .files.megascan_files import TimelineError
from .spans import PASSES, Floats, Integers, Spans, ranks_text

__all__ = ["PipelinePasses", "pipeline_passes"]

_MOST_STAGES = 65_536
_MOST_MICRO_BATCHES = 1 << 20
_MOST_RANKS = 1 << 22
_MOSTLY = 0.5


@dataclass(frozen=True, eq=False)
class PipelinePasses:
    """Passes of micro-batches. Without stages every rank is a pipeline of one.

    Attributes
    ----------
    spans : Spans
    begin, end : numpy.ndarray
        Of all spans, ns on one clock, float64 ``[spans]``.
    ranks : numpy.ndarray
        Of each replica and stage, int64 ``[replicas, stages]``; -1 where there is none. Ranks of a stage count by their number, so that the first are the lowest data-parallel replica and tensor rank 0.
    rows : numpy.ndarray
        Spans that are a whole pass of a micro-batch, int64 ``[n]`` as all below.
    stage, replica, chunk, micro_batch, virtual : numpy.ndarray
        Of each; ``virtual`` is the place of its chunk in the order in which a micro-batch runs through all.
    chunks, micro_batches : int
        Of the model on each stage; of a step.
    placement : str
        ``loop``: every chunk begins at the first stage; ``v``: every second one runs back from the last.
    problems : tuple of str
        What was left out, in sentences.
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
        """How many stages there are."""
        return int(self.ranks.shape[1])


def pipeline_passes(analysis: Analysis) -> PipelinePasses:
    """Find the passes of a pipeline.

    Parameters
    ----------
    analysis : Analysis

    Raises
    ------
    TimelineError
        Where no span is a pass of a micro-batch, and where stages, chunks or micro-batches are too many to be of a pipeline.
    """
    spans = analysis.spans
    rows = np.flatnonzero(spans.of_kind(*PASSES) & spans.whole_phases & (spans.count == 1))
    problems: list[str] = []
    micro_batch = spans.micro_batch[rows]
    if len(rows) and (micro_batch < 0).all():
        # Other tools do not number them.
        micro_batch = _by_order(spans, rows)
    known = micro_batch >= 0
    if not known.all():
        problems.append(f"{int((~known).sum())} passes do not say their micro-batch; they are left out.")
    ranks, stage_of, replica_of, more = _places(spans)
    at = np.searchsorted(spans.ranks, spans.rank[rows])
    kept = known & (stage_of[at] >= 0)
    rows, at, micro_batch = rows[kept], at[kept], micro_batch[kept]
    if not len(rows):
        raise TimelineError(
            "The spans hold no forward or backward pass of a micro-batch. Record them with megalens.trace(model, timeline='phases') or run.configure(timeline='phases')."
        )
    stage, replica, chunk = stage_of[at], replica_of[at], np.maximum(spans.chunk[rows], 0)
    stages, chunks, count = ranks.shape[1], int(chunk.max()) + 1, int(micro_batch.max()) + 1
    if stages * chunks > _MOST_STAGES or count > _MOST_MICRO_BATCHES:
        raise TimelineError(
            f"A pipeline has at most {_MOST_STAGES} stages times chunks and {_MOST_MICRO_BATCHES} micro-batches a step; these spans name {stages} × {chunks} and {count}."
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
    """Return numbers of passes by the order in which each kind of them came on a rank in a step and chunk."""
    columns = (spans.kind[rows], spans.chunk[rows], spans.step[rows], spans.rank[rows])
    order = np.lexsort((spans.start[rows], *columns))
    new = np.ones(len(rows), bool)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    number = np.empty(len(rows), np.int64)
    number[order] = np.arange(len(rows)) - np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    return number


def _places(spans: Spans) -> tuple[Integers, Integers, Integers, list[str]]:
    """Return the ranks of each replica and stage, and the stage and replica of each rank; -1 of ranks without a stage beside others that have one."""
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
            f"At most {_MOST_RANKS} ranks of pipelines are looked at; these spans name {shape[1]} stages of up to {shape[0]} ranks."
        )
    ranks = np.full(shape, -1)
    ranks[replica[inside], stage[inside]] = spans.ranks[inside]
    missing = np.flatnonzero(ranks[0] < 0).tolist()
    if missing:
        text = ranks_text(missing).replace("rank", "stage", 1).capitalize()
        problems.append(f"{text} of the pipeline have no spans.")
    return ranks, stage, replica, problems


def _one_clock(analysis: Analysis, ranks: Integers) -> tuple[Floats, Floats, list[str]]:
    """Return when spans begin and end, ns. Clocks that nothing connects are taken for one where the same steps coincide by them, as in a trace of all ranks; else every rank begins its steps at once."""
    spans, clocks = analysis.spans, analysis.clocks
    begin, end = (clocks.aligned(spans.rank, each).astype(float) for each in (spans.start, spans.end))
    component = clocks.component[np.searchsorted(clocks.ranks, ranks[ranks >= 0])]
    if len(np.unique(component)) < 2:
        return begin, end, []
    whole = np.flatnonzero(spans.of_kind("step"))
    step = np.searchsorted(spans.steps, spans.step)
    first = np.full(len(spans.steps), -np.inf)
    last = np.full(len(spans.steps), np.inf)
    np.maximum.at(first, step[whole], begin[whole])
    np.minimum.at(last, step[whole], end[whole])
    if len(whole) and float((first < last).mean()) > _MOSTLY:
        return begin, end, []
    cell = np.searchsorted(spans.ranks, spans.rank) * len(spans.steps) + step
    zero = np.full(len(spans.ranks) * len(spans.steps), np.inf)
    of = whole if len(whole) else np.arange(len(spans))
    np.minimum.at(zero, cell[of], begin[of])
    # A step that a rank has no span of is on no clock.
    zero[np.isinf(zero)] = 0
    places = step * float((spans.end - spans.start).max() + 1)
    apart = ranks_text(np.unique(component).tolist())
    return (
        begin - zero[cell] + places,
        end - zero[cell] + places,
        [f"Nothing connects the clocks of {apart} and those with them: each begins its steps at 0."],
    )


def _falls(key: Integers, stage: Integers, begin: Floats) -> bool:
    """Return whether micro-batches run through their odd chunks from the last stage to the first."""
    order = np.lexsort((stage, *key))
    same = (key[:, order][:, 1:] == key[:, order][:, :-1]).all(axis=0)
    same &= stage[order][1:] != stage[order][:-1]
    return bool(np.sign(np.diff(begin[order]))[same].sum() < 0)
