"""Says while the training runs which rank computes more slowly than those that do the same: from sums of each step, on rank 0."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["SlowRanks", "computed_ns"]

_RULE = "slow_rank"
_WINDOW = 30
"""Steps that a finding rests on."""
_LEAST = 0.05
_SURE = 6.0
"""Standard errors that a finding must be above nothing."""
_USUAL = 0.8
"""Share of the steps in which it must be seen: a few long ones are another thing."""
_MAD = 1.4826
_MOST_STEPS = 256
"""Steps that wait for ranks which have not said theirs."""
_AGAIN = 1.5

_PASSES = ("forward", "backward", "wgrad")
_TRAFFIC = ("collective", "send", "receive")


def computed_ns(columns: Mapping[str, np.ndarray], texts: Sequence[str], *, summed: bool) -> float:
    """Return the ns in which a rank itself worked on a step: its passes and optimizer, without the communication in them that it waited for.

    Parameters
    ----------
    columns : mapping of str to numpy.ndarray
        ``kind`` and ``name`` as places in ``texts``, ``start``, ``end`` and ``blocked``; int64 ``[n]``.
    texts : sequence of str
    summed : bool
        Whether each kind is one row: then all communication is taken for being in passes.
    """
    codes = {text: code for code, text in enumerate(texts)}

    def of(*kinds: str) -> np.ndarray:
        return np.isin(columns["kind"], [codes[kind] for kind in kinds if kind in codes])

    whole = columns["name"] == codes.get("", -1)
    work = np.flatnonzero((of(*_PASSES) & whole) | of("optimizer"))
    start, end = columns["start"], columns["end"]
    total = float((end[work] - start[work]).sum())
    waits = np.flatnonzero(of(*_TRAFFIC) & (columns["blocked"] > 0))
    if summed:
        return total - float(columns["blocked"][waits].sum())
    order = work[np.argsort(start[work], kind="stable")]
    begins = end[waits] - columns["blocked"][waits]
    at = np.searchsorted(start[order], begins, side="right") - 1
    inside = (at >= 0) & (end[waits] <= end[order][np.maximum(at, 0)]) if len(order) else at < -1
    return total - float(columns["blocked"][waits[inside]].sum())


@dataclass
class _RankHistory:
    slower: deque[tuple[int, float]]
    own: deque[float]
    like: deque[float]
    told: float = 0.0


class SlowRanks:
    """Compares the ranks of each pipeline stage step by step.

    Parameters
    ----------
    world : int
        How many ranks there are.
    """

    def __init__(self, world: int) -> None:
        self._world = world
        self._steps: dict[int, dict[int, tuple[int, float]]] = {}
        self._ranks: dict[int, _RankHistory] = {}

    def take(self, rank: int, stage: int, step: int, ns: float) -> list[dict[str, Any]]:
        """Take what a rank worked on a step; return the rows of the stream ``alarms`` that follow from it."""
        if self._world < 2:
            return []
        own = self._steps.setdefault(step, {})
        own[rank] = (stage, ns)
        if len(own) < self._world:
            while len(self._steps) > _MOST_STEPS:
                del self._steps[min(self._steps)]
            return []
        del self._steps[step]
        found = []
        stages: dict[int, list[int]] = {}
        for each, (of, _) in sorted(own.items()):
            stages.setdefault(of, []).append(each)
        for of, ranks in stages.items():
            if len(ranks) < 2:
                continue
            work = np.array([own[each][1] for each in ranks])
            for at, each in enumerate(ranks):
                like = float(np.median(np.delete(work, at)))
                alarm = self._judge(each, of, step, work[at], like) if like > 0 else None
                if alarm is not None:
                    found.append(alarm)
        return found

    def _judge(self, rank: int, stage: int, step: int, own: float, like: float) -> dict[str, Any] | None:
        state = self._ranks.get(rank)
        if state is None:
            state = self._ranks[rank] = _RankHistory(deque(maxlen=10 * _WINDOW), deque(maxlen=_WINDOW), deque(maxlen=_WINDOW))  # fmt: skip
        state.slower.append((step, own / like - 1))
        state.own.append(own)
        state.like.append(like)
        if len(state.own) < _WINDOW:
            return None
        recent = np.array([value for _, value in [*state.slower][-_WINDOW:]])
        middle = float(np.median(recent))
        error = _MAD * float(np.median(np.abs(recent - middle))) / math.sqrt(_WINDOW)
        if middle < _LEAST / 2:
            state.told = 0.0
        sure = middle >= _LEAST and middle > _SURE * error
        if not sure or (recent > middle / 2).mean() < _USUAL or middle < _AGAIN * state.told:
            return None
        state.told = middle
        # Since when: the stretch up to now with most steps of it, each other step counting against two of them.
        score = np.cumsum([1 if value > middle / 2 else -2 for _, value in reversed(state.slower)])
        since = state.slower[-1 - int(np.argmax(score))][0]
        where = " of its stage" if stage >= 0 else ""
        return {
            "step": step, "time": time.time(), "rank": rank, "stage": stage, "micro_batch": -1, "rule": _RULE,
            "severity": "warning", "direction": "compute", "stat": "span", "name": "compute", "statistic": "ms",
            "value": float(np.median(state.own)) / 1e6, "expected": float(np.median(state.like)) / 1e6,
            "sentence": f"Rank {rank} is {middle:.0%} slower than the other ranks{where} since step {since}.",
            "place": 0, "samples": "",
        }  # fmt: skip
