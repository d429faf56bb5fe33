"""What a recording lacks for a verdict: who is missing, and whom nothing connects."""

from __future__ import annotations

import numpy as np

from .dependencies import Dependencies
from .spans import COMMUNICATION, PASSES, Spans, Work, ranks_text
from .stretches import SHORTEST

_MOST_GROUPS = 4_096


def lacking(spans: Spans, done: Work, found: Dependencies | None) -> tuple[str, ...]:
    """Return sentences about what is missing to call a job healthy; ``found`` is absent of sums."""
    if not done.ready:
        return ()
    said: list[str] = []
    ranks = spans.ranks
    traffic = spans.of_kind(*COMMUNICATION)
    mentioned = [spans.members(int(group)) for group in np.unique(spans.group[traffic])[:_MOST_GROUPS]]
    others = sorted({rank for members in mentioned for rank in members} - {*ranks.tolist()})
    if others:
        said.append(
            f"{_capital(ranks_text(others))} communicate{_s(others)} with them and {_have(others)} no spans."
        )
    if len(ranks) == 1:
        said.append(f"Only rank {int(ranks[0])} is there, which nobody can be compared with.")
    elif not connected(spans, found):
        said.append(
            "No collective or message connects all of the ranks, so that nobody is seen to wait for another."
        )
    elif not bool(spans.blocked[traffic].any()):
        said.append("No rank waited for another.")
    idle = np.setdiff1d(ranks, spans.rank[spans.of_kind(*PASSES)])
    if len(idle):
        said.append(f"No pass was recorded of {ranks_text(idle.tolist())}.")
    steps = int(np.isfinite(done.step).any(axis=0).sum())
    if steps < SHORTEST:
        said.append(f"Steps: {steps}. Who is slow shows in {SHORTEST} or more.")
    return tuple(said)


def connected(spans: Spans, found: Dependencies | None) -> bool:
    """Return whether collectives and messages connect all ranks; of sums, whether all of them communicate."""
    if found is None:
        return len(np.unique(spans.rank[spans.of_kind(*COMMUNICATION)])) == len(spans.ranks)
    group = np.arange(len(spans.ranks))
    events = np.flatnonzero(found.complete)
    size = np.diff(found.first)[events]
    starts = found.first[events]
    member = np.repeat(starts, size) + np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    at = np.searchsorted(spans.ranks, spans.rank[found.rows[member]])
    pairs = np.unique(
        np.stack([np.repeat(np.searchsorted(spans.ranks, spans.rank[found.rows[starts]]), size), at]), axis=1
    )
    while True:
        lowest = group.copy()
        np.minimum.at(lowest, pairs[0], group[pairs[1]])
        np.minimum.at(lowest, pairs[1], lowest[pairs[0]])
        if (lowest == group).all():
            return bool((group == 0).all())
        group = lowest


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _s(ranks: list[int]) -> str:
    return "s" if len(ranks) == 1 else ""


def _have(ranks: list[int]) -> str:
    return "has" if len(ranks) == 1 else "have"
