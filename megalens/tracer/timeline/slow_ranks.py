"""Says while the training runs which rank computes more slowly than those that do the same: from sums of each step, on rank 0."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["SlowRanks"]

_RULE = "slow_rank"
_WINDOW = 30
"""Steps that a finding rests on."""
_LEAST = 0.05
_SURE = 6.0
"""Standard errors that a finding must be above nothing."""
_USUAL = 0.8
"""Share of the steps in which it must be seen: a few long ones are another thing."""
_MAD = 1.4826
_MOST_STEPS, _MOST_WAITING = 256, 20_000
"""Steps that wait for ranks which have not said theirs: so many, or as many as hold so many numbers. Ranks say those of up to a second together."""
_AGAIN = 1.5


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
            while len(self._steps) > max(_MOST_STEPS, _MOST_WAITING // self._world):
                del self._steps[next(iter(self._steps))]
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
