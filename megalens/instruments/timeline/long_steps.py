"""What takes longer in a step: which part, of which rank, and whether a span explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .culprits import Culprit
from .spans import COMPUTING, Bools, Floats, Work
from .stretches import LEAST_NS, MAD, SHORTEST, median, running_median

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
