"""Messages of a pipeline that were not recorded, from its passes: a micro-batch goes from stage to stage."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from .spans import INFERRED, KINDS, Integers, Spans


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
