"""What a recording lacks for a verdict: who is missing, and whom nothing connects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .dependencies import Dependencies
from .spans import COMMUNICATION, INFERRED, PASSES, Spans, Work, ranks_text
from .stretches import SHORTEST

_MOST_GROUPS, _MOST_RANKS = 4_096, 1 << 20


@dataclass(frozen=True)
class Lacking:
    """What is missing, in sentences, and whether the rest shows what a slow rank costs."""

    sentences: tuple[str, ...]
    prices: bool


def lacking(spans: Spans, done: Work, found: Dependencies | None, world: int = 0) -> Lacking:
    """Return what is missing to call a job of ``world`` ranks healthy; ``found`` is absent of sums."""
    if not done.ready:
        return Lacking((), False)
    said: list[str] = []
    ranks = spans.ranks
    traffic = spans.of_kind(*COMMUNICATION)
    mentioned = [spans.members(int(group)) for group in np.unique(spans.group[traffic])[:_MOST_GROUPS]]
    named = {rank for members in mentioned for rank in members}
    others = sorted((named | {*range(min(world, _MOST_RANKS))}) - {*ranks.tolist()})
    if others and world > len(ranks):
        without = f"{len(others)} {_have(others)} no spans: {ranks_text(others)}"
        said.append(f"The job has {world} ranks, of which {without}.")
    elif others:
        said.append(
            f"{_capital(ranks_text(others))} communicate{_s(others)} with them and {_have(others)} no spans."
        )
    prices = False
    if len(ranks) == 1 and world == 1:
        pass
    elif len(ranks) == 1:
        said.append(f"Only rank {int(ranks[0])} is there, which nobody can be compared with.")
    elif not connected(spans, found):
        said.append(
            "No collective or message connects all of the ranks, so that nobody is seen to wait for another."
        )
    elif not bool(spans.blocked[traffic].any()):
        said.append("No rank waited for another.")
    else:
        prices = not others
    if INFERRED in spans.names:
        said.append(
            "Messages between stages were not recorded: who waits for whom is taken from the micro-batches, "
            "and pauses before passes are taken for waiting."
        )
    idle = np.setdiff1d(ranks, spans.rank[spans.of_kind(*PASSES)])
    if len(idle):
        said.append(f"No pass was recorded of {ranks_text(idle.tolist())}.")
    steps = int(np.isfinite(done.step).any(axis=0).sum())
    if steps < SHORTEST:
        said.append(f"Steps: {steps}. Who is slow shows in {SHORTEST} or more.")
    return Lacking(tuple(said), prices)


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
