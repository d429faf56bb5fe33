"""Says while the training runs which rank computes more slowly than those that do the same: from sums of each step, on rank 0."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

__all__ = ["SlowRanks", "medians_of_others"]

_RULE = "slow_rank"
_WINDOW = 30
"""Steps that a finding rests on."""
_KEPT = 10 * _WINDOW
"""Steps in which it is looked for since when."""
_LEAST = 0.05
_SURE = 6.0
"""Standard errors that a finding must be above nothing."""
_USUAL = 0.8
"""Share of the steps in which it must be seen: a few long ones are another thing."""
_MAD = 1.4826
_MOST_STEPS, _MOST_WAITING = 256, 20_000
"""Steps that wait for ranks which have not said theirs: so many, or as many as hold so many numbers. Ranks say those of up to a second together."""
_AGAIN = 1.5


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
        # Of the newest steps that all ranks have said, the next one's place being ``_seen`` modulo how many are kept.
        self._seen = 0
        self._numbers = np.zeros(_KEPT, np.int64)
        self._slower = np.zeros((_KEPT, world))
        self._own, self._like = np.zeros((2, _WINDOW, world))
        self._told = np.zeros(world)

    def take(self, rank: int, stage: int, step: int, ns: float) -> list[dict[str, Any]]:
        """Take what a rank worked on a step; return the rows of the stream ``alarms`` that follow from it."""
        if self._world < 2:
            return []
        said = self._steps.setdefault(step, {})
        said[rank] = (stage, ns)
        if len(said) < self._world:
            while len(self._steps) > max(_MOST_STEPS, _MOST_WAITING // self._world):
                del self._steps[next(iter(self._steps))]
            return []
        del self._steps[step]
        stages, work = np.array([said[each] for each in range(self._world)]).T
        like = medians_of_others(stages, work)
        at, recent = self._seen % _KEPT, self._seen % _WINDOW
        self._seen += 1
        self._numbers[at], self._own[recent], self._like[recent] = step, work, like
        # Who has nobody to be compared with, or nobody who works, is not slower.
        self._slower[at] = np.divide(work, like, out=np.ones(len(work)), where=like > 0) - 1
        return self._judged(step, stages) if self._seen >= _WINDOW else []

    def _judged(self, step: int, stages: np.ndarray) -> list[dict[str, Any]]:
        """Return the alarms of a step: most often there are none, which the first lines find."""
        newest = (self._seen - 1 - np.arange(min(self._seen, _KEPT))) % _KEPT
        recent = self._slower[newest[:_WINDOW]]
        middle = np.median(recent, axis=0)
        self._told[middle < _LEAST / 2] = 0.0
        large = np.flatnonzero((middle >= _LEAST) & (middle >= _AGAIN * self._told))
        found = []
        for rank in large.tolist():
            mine, level = recent[:, rank], float(middle[rank])
            error = _MAD * float(np.median(np.abs(mine - level))) / math.sqrt(_WINDOW)
            if level <= _SURE * error or (mine > level / 2).mean() < _USUAL:
                continue
            self._told[rank] = level
            # Since when: the stretch up to now with most steps of it, each other step counting against two of them.
            score = np.cumsum(np.where(self._slower[newest, rank] > level / 2, 1, -2))
            since = int(self._numbers[newest[int(np.argmax(score))]])
            stage = int(stages[rank])
            where = " of its stage" if stage >= 0 else ""
            found.append({
                "step": step, "time": time.time(), "rank": rank, "stage": stage, "micro_batch": -1, "rule": _RULE,
                "severity": "warning", "direction": "compute", "stat": "span", "name": "compute", "statistic": "ms",
                "value": float(np.median(self._own[:, rank])) / 1e6,
                "expected": float(np.median(self._like[:, rank])) / 1e6,
                "sentence": f"Rank {rank} is {level:.0%} slower than the other ranks{where} since step {since}.",
                "place": 0, "samples": "",
            })  # fmt: skip
        return found


def medians_of_others(stages: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Return for each rank the median of what the other ranks of its stage worked; NaN where it has no other."""
    like = np.full(len(work), np.nan)
    for stage in np.unique(stages):
        ranks = np.flatnonzero(stages == stage)
        others = len(ranks) - 1
        if others < 1:
            continue
        order = np.argsort(work[ranks], kind="stable")
        place = np.empty(len(ranks), np.int64)
        place[order] = np.arange(len(ranks))
        ordered = work[ranks][order]
        # Without a rank those after it move up by one.
        below, above = ((others - 1) // 2, others // 2)
        like[ranks] = sum(ordered[np.where(place > each, each, each + 1)] for each in (below, above)) / 2
    return like
