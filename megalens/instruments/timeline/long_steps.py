"""What takes longer in a step: which part, of which rank, and whether a span explains it.

Robust statistics of series over steps: medians, and the intervals in which a series is high.

What a recording lacks for a verdict: who is missing, and whom nothing connects.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from .culprits import Culprit
from .dependencies import Dependencies
from .spans import COMMUNICATION, COMPUTING, INFERRED, PASSES, Bools, Floats, Spans, Work, ranks_text

SURE = 6.0
"""Standard errors by which a finding must exceed zero."""
SHORTEST = 6
_BLOCK = 4
"""Steps of a block by which lasting noise, such as of a busy host, is measured."""
MAD = 1.4826
LEAST_NS = 1e6
"""Less than a millisecond of a step is noise of the operating system."""


def stretches(values: Floats, least: float, sure: float = SURE) -> dict[int, tuple[int, int, float, float]]:
    """Return by row the interval that is most above ``least`` / 2, if its mean is at least that.

    Columns are beginning, end, mean and standard error.
    """
    result: dict[int, tuple[int, int, float, float]] = {}
    if values.shape[1] < SHORTEST:
        return result
    smooth = running_median(values, 3)
    noise = MAD * median(np.abs(np.diff(values, axis=1)), axis=1) / sqrt(2)
    for row in np.flatnonzero(np.nan_to_num(smooth).max(axis=1) > least / 2):
        # Once more above half of what was found: where it really begins and ends.
        mean = least
        for _ in range(3):
            begin, end = _highest(smooth[row], mean / 2)
            inside = values[row, begin:end]
            count = int(np.isfinite(inside).sum())
            if count < SHORTEST:
                break
            mean = max(least, float(np.nanmean(smooth[row, begin:end])))
        else:
            found = float(np.nanmedian(inside))
            error = max(float(noise[row]), _lasting(values[row], begin, end)) / sqrt(count)
            error = max(error, 1e-4)
            if found >= least and found >= sure * error:
                result[int(row)] = (begin, end, found, error)
    return result


def _lasting(values: Floats, begin: int, end: int) -> float:
    """Return the noise of single values from means over blocks of steps, without what was found.

    Where a disturbance lasts, that is more than differences of neighbours show.
    """
    rest = values.copy()
    inside = np.zeros(len(values), bool)
    inside[begin:end] = True
    for part in (inside, ~inside):
        if np.isfinite(rest[part]).any():
            rest[part] -= np.nanmedian(rest[part])
    complete = len(rest) // _BLOCK * _BLOCK
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        means = np.nanmean(rest[:complete].reshape(-1, _BLOCK), axis=1)
    means = means[np.isfinite(means)]
    return sqrt(_BLOCK) * MAD * float(np.median(np.abs(means))) if len(means) >= 4 else 0.0


def _highest(values: Floats, above: float) -> tuple[int, int]:
    """Return the interval with the largest sum above a value (Kadane); missing steps count as nothing."""
    sums = np.concatenate([[0.0], np.cumsum(np.where(np.isfinite(values), values - above, 0.0))])
    lowest = np.minimum.accumulate(sums)
    end = int((sums - lowest).argmax())
    return int(sums[: end + 1].argmin()), end


def median(values: Floats, axis: int) -> Floats:
    """Return medians without NaN, or NaN if there is nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        median: Floats = np.nanmedian(values, axis=axis)
    return median


def running_median(values: Floats, width: int) -> Floats:
    """Return running medians along the last axis, over fewer values at the ends."""
    half = width // 2
    padded = np.pad(values, ((0, 0), (half, half)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)
    return median(windows, 2)


_BAD_STEP = 0.3
"""A bad step exceeds its neighbours by this share, and by eight times their usual difference."""
_LEAST_STALL = 0.05
"""Share of a step of a stall, which also exceeds eight times its rank's usual difference."""
_FEW = 0.2
"""Share of the steps in which a rank stalls; in more it is a part of the steps."""
_MOST_PARTS, _LEAST_PART = 2, 0.15
"""Parts that are named of what takes longer, and the least share of one."""
_LEAST_OWN = 0.5
"""Share of what a step takes longer that the work of a rank must explain."""
PARTS = (*COMPUTING, "data", "checkpoint", "paused", "host")
_UNEXPLAINED = tuple(PARTS.index(part) for part in (*COMPUTING, "host"))
"""What no span explains but the script's own."""


def bad_steps(done: Work) -> tuple[list[Culprit], list[Culprit], Bools]:
    """Return single steps far longer than their neighbours, and which steps are left.

    The second are those in which no rank did more than usual, so that they are nobody's.
    """
    longest, around = _longest(done)
    usual = MAD * float(np.nanmedian(np.abs(longest - around)))
    long = longest > around + np.maximum(_BAD_STEP * around, 8 * usual)
    usable = np.ones(len(longest), bool)
    parts = _parts(done)
    own = parts.sum(axis=0)
    found, moving = [], []
    for at in np.flatnonzero(long):
        near = long[max(0, at - 2) : at + 3].sum()
        # The first step warms up, and in the second DDP rebuilds its buckets.
        if at < 2 or near > 2:
            continue
        usable[at] = False
        extra = own[:, at] - np.nanmedian(own, axis=1)
        took = float(longest[at] - around[at])
        if np.nanmax(extra) < _LEAST_OWN * took:
            moving.append(_moving(int(done.steps[at]), took, took / float(around[at])))
            continue
        late = extra > 0.5 * np.nanmax(extra)
        more = np.nanmedian(parts[:, late, at] - np.nanmedian(parts[:, late], axis=2), axis=1)
        found.append(_single("step", done, at, late, took / float(around[at]), more))
    return _together(found), _together(moving), usable


def stalls(done: Work, usable: Bools) -> list[Culprit]:
    """Return what makes a few steps longer on some ranks, mostly what no span explains."""
    steps = int(usable.sum())
    if steps < 9:
        return []
    longest, around = _longest(done)
    parts = _parts(done)[list(_UNEXPLAINED)]
    extra = np.stack([each - running_median(each, 9) for each in parts])
    total = np.nan_to_num(extra.sum(axis=0))
    noise = MAD * median(np.abs(total[:, usable]), axis=1)[:, None]
    least = np.maximum(np.maximum(LEAST_NS, _LEAST_STALL * around), 8 * noise)
    large = (total > least) & (longest - around > total / 2) & usable
    large[:, :2] = False
    large &= large.sum(axis=1, keepdims=True) <= _FEW * steps
    found = []
    for at in np.flatnonzero(large.any(axis=0)):
        # A rank whose steps always differ much may take longer still, and is no stall.
        late = large[:, at] & (total[:, at] > total[large[:, at], at].max() / 2)
        more = np.zeros(len(PARTS))
        more[list(_UNEXPLAINED)] = np.nanmedian(extra[:, late, at], axis=1)
        found.append(_single("stall", done, at, late, float(total[late, at].max() / around[at]), more))
    return _together(found)


def of_one_rank(culprit: Culprit, done: Work) -> Culprit:
    """Return a finding of a rank that is alone with the parts of a step that take longer, and by how much."""
    if culprit.longer:
        return replace(culprit, alone=True)
    inside = (done.steps >= culprit.first) & (done.steps <= culprit.last)
    before = ~inside if (~inside).sum() >= SHORTEST else np.ones_like(inside)

    def more(values: Floats) -> float:
        return float(np.nanmedian(values[0, inside])) - float(np.nanquantile(values[0, before], 0.2))

    if culprit.kind == "device":
        longer = named_parts([(part, more(done.parts[at])) for at, part in enumerate(COMPUTING)])
    elif culprit.kind == "host":
        longer = [("host", more(done.host))]
    else:
        longer = [(culprit.kind, float(np.nanmedian(getattr(done, culprit.kind)[0, inside])))]
    return replace(culprit, longer=tuple(longer), alone=True)


def named_parts(sizes: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return the few parts that make up most of what takes longer, the largest first."""
    whole = sum(size for _, size in sizes if size > 0)
    large = sorted(sizes, key=lambda each: -each[1])[:_MOST_PARTS]
    return [each for each in large if each[1] > _LEAST_PART * whole]


def _longest(done: Work) -> tuple[Floats, Floats]:
    """Return how long each step takes, on the rank on which it is longest, and those around it."""
    longest = np.nanmax(done.step, axis=0)
    return longest, running_median(longest[None, :], 9)[0]


def _parts(done: Work) -> Floats:
    return np.concatenate(
        [done.parts, np.stack([done.data, done.checkpoint, done.paused, done.host + done.between])]
    )


def _moving(step: int, ns: float, slower: float) -> Culprit:
    nan = float("nan")
    return Culprit("stall", (), step, step, slower, nan, nan, 1.0, steps=(step,), longer=(("moving", ns),))


def _single(kind: str, done: Work, at: np.intp, late: Bools, slower: float, more: Floats) -> Culprit:
    sizes = dict(zip(PARTS, more.tolist(), strict=True))
    # A span of the script's own may explain what is in passes, or in none.
    own = float(np.nanmedian(done.user[late, at] - np.nanmedian(done.user[late], axis=1)))
    if own > _LEAST_OWN * float(np.maximum(more[list(_UNEXPLAINED)], 0).sum()):
        sizes |= {PARTS[part]: 0.0 for part in _UNEXPLAINED}
        sizes[done.names[done.user_name[late, at][0]]] = own
    longer = tuple(named_parts([*sizes.items()]))
    ranks, step = tuple(done.ranks[late].tolist()), int(done.steps[at])
    nan = float("nan")
    return Culprit(kind, ranks, step, step, slower, nan, nan, 1.0, steps=(step,), longer=longer)


def _together(found: Sequence[Culprit]) -> list[Culprit]:
    """Join steps that are long for the same reason on the same ranks."""
    alike: dict[tuple[tuple[int, ...], str], list[Culprit]] = {}
    for each in found:
        alike.setdefault((each.ranks, each.longer[0][0] if each.longer else ""), []).append(each)
    result = []
    for several in alike.values():
        sizes = {
            part: [size for each in several for name, size in each.longer if name == part]
            for part, _ in several[0].longer
        }
        result.append(
            replace(
                several[0],
                last=several[-1].last,
                slower=float(np.median([each.slower for each in several])),
                steps=tuple(each.first for each in several),
                longer=tuple((part, float(np.median(each))) for part, each in sizes.items()),
            )
        )
    return result


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
