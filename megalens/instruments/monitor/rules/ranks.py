"""Rules over ranks: what should be the same, what should be alike, and what the reduction should give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....protocol import RANK_SCALAR
from ..levels import group_medians
from ..rule import Finding, Rule, number, percent
from ..table import StepTable

_EXACT = ("param", "param_origin", "grad", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Replicas(Rule):
    """A copy of a tensor that should be the same on several ranks is not: they train different models from
    here on.
    """

    name = "replicas"
    title = "Replicas differ"
    severity = "critical"

    def find(self, now: StepTable) -> Iterator[Finding]:
        layout = now.layout
        groups = layout.groups("tensor")
        judged = layout.once(
            "replicas", lambda: ~layout.counted & layout.of(*_EXACT) & ~layout.matching(r"^\*$")
        )
        if not judged.any():
            return
        comparable = np.isin(groups, groups[judged])
        rows = np.flatnonzero(comparable & layout.of(*_EXACT))
        values = now.rows[rows][:, [0, 1, 2, 5, 6, 7, 8]]
        of = groups[rows]
        usual = _usual(values, of)
        differs = ((values != usual) & ~(np.isnan(values) & np.isnan(usual))).any(axis=1)
        if differs.any():
            rows = rows[differs]
            value, expected = now.rms[rows], _rms(usual[differs])
            yield Finding(
                rows,
                "rms",
                value,
                expected,
                lambda value, expected: (
                    f"This rank's copy differs from the others': its rms is {value:.9g}, theirs "
                    f"{expected:.9g}."
                ),
            )


def _rms(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt(np.maximum(values[:, 2], 0) / values[:, 0] + values[:, 1] ** 2)


def _usual(values: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what most rows of each row's group are, by the upper median of column 2; of two the first."""
    order = np.lexsort((values[:, 2], values[:, 1], groups))
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.r_[True, sorted_groups[1:] != sorted_groups[:-1]])
    sizes = np.diff(np.r_[starts, len(order)])
    # Of two there is no majority: the first process's is expected of the other.
    middle = order[starts + sizes // 2]
    first = np.full(groups.max() + 1, -1)
    first[groups[::-1]] = np.arange(len(groups))[::-1]
    chosen = np.where(sizes == 2, first[sorted_groups[starts]], middle)
    result: NDArray[np.float64] = values[np.repeat(chosen, sizes)]
    back = np.empty_like(result)
    back[order] = result
    return back


@dataclass(frozen=True)
class OddRank(Rule):
    """One rank reports something else than the others, whose data are alike, or its loss has left theirs for
    good: its batch, its device or its program is not as theirs.
    """

    name = "odd_rank"
    title = "Odd rank"
    threshold: float = number(
        "Threshold", "How many usual deviations it may be off from the median of the ranks.", 2, 1000, 12
    )
    factor: float = number(
        "Factor", "And at least how many times as large or small it must be.", 1.01, 1e6, 4
    )
    gradient_factor: float = number(
        "Factor of gradients",
        "The same for gradients: single batches of a healthy training are far apart.",
        1.01,
        1e9,
        16384,
    )

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors of a rank of deviating size, and a rank whose loss has left the others'."""
        layout = now.layout
        rows = layout.several()
        if not len(rows):
            return
        yield from self._losses(now, rows[layout.of(RANK_SCALAR)[rows]])
        groups, sizes = layout.groups("tensor")[rows], now.size[rows]
        middle = group_medians(sizes, groups)
        off = sizes - middle[groups]
        sigma = np.nan_to_num(now.past("size").sigma[rows], nan=0.3)
        gradients = layout.of("dgrad", "residual_dgrad", "grad_unreduced")[rows]
        least = np.log2(np.where(gradients, self.gradient_factor, self.factor))
        far = np.isfinite(off) & (np.abs(off) > np.maximum(least, self.threshold * sigma))
        if far.any():
            yield Finding(
                rows[far],
                "rms",
                2.0 ** sizes[far],
                2.0 ** middle[groups][far],
                lambda value, others: f"Its rms is {value:.3g} on this rank, and {others:.3g} on the others.",
            )

    def _losses(self, now: StepTable, rows: NDArray[np.intp]) -> Iterator[Finding]:
        """Find ranks whose loss, relative to the median of all, stays where it never was before, beyond its
        noise.

        Each rank is compared with itself: one whose data are always harder is not odd. And no single step
        decides, since of a thousand ranks one is always far off.
        """
        groups = now.layout.groups("tensor")[rows]
        for group in np.unique(groups).tolist():
            of = rows[groups == group]
            off = now.size[of] - np.median(now.size[of])
            earlier = now.remember(("off", of.tobytes()), off)[-3 * _STAYS + 1 :]
            if len(earlier) < 3 * _STAYS - 1:
                continue
            offs = np.stack((*earlier, off))
            last, before = offs[-_STAYS:], offs[:-_STAYS]
            moved = np.median(last, axis=0) - np.median(before, axis=0)
            noise = 1.4826 * np.median(np.abs(before - np.median(before, axis=0)), axis=0)
            apart = (last.min(axis=0) > before.max(axis=0)) | (last.max(axis=0) < before.min(axis=0))
            found = apart & (np.abs(moved) > np.maximum(_LEAST_BITS, _RISE * noise))
            if found.any():
                others = float(2.0 ** np.median(now.size[of]))
                yield Finding(
                    of[found],
                    "value",
                    now.rows[of[found], 1],
                    others,
                    lambda value, others: (
                        f"It is {value:.3g} on this rank and about {others:.3g} on the others, and for "
                        f"{_STAYS} steps as far from theirs as never in the {2 * _STAYS} before."
                    ),
                )


# Steps for which a loss stays elsewhere; by how many doublings, and times its noise, it moves there.
_STAYS, _LEAST_BITS, _RISE = 8, 0.05, 4.0


@dataclass(frozen=True)
class Reduction(Rule):
    """Gradients after the reduction over data-parallel ranks are not the mean of what the ranks gave: one was
    left out, or the scale is wrong.
    """

    name = "reduction"
    title = "Wrong reduction"
    severity = "critical"
    tolerance: float = number(
        "Tolerance", "How far the scale may be from what it was, as a part of it.", 1e-6, 1, 0.02
    )

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find ranks whose gradients the reduction left unchanged, and a scale that changed."""
        layout = now.layout
        after, before = layout.pairs("grad", "grad_unreduced")
        if not len(before):
            return
        complete = now.rows[after][:, 0] == now.rows[before][:, 0]
        if not complete.all():
            # Ranks store shards of what they computed completely.
            yield from self._of_shards(now)
            return
        ranks = layout.ranks[before]
        if len(np.unique(ranks)) < 2:
            return
        groups = layout.groups("tensor")[before]
        n = groups.max() + 1
        mean = np.bincount(groups, now.rows[before, 1], n) / np.maximum(np.bincount(groups, minlength=n), 1)
        same = (now.rows[after][:, 1:7] == now.rows[before][:, 1:7]).all(axis=1)
        alone = np.abs(now.rows[before, 1] - mean[groups]) > 1e-3 * now.rms[before]
        left = same & alone & (now.rms[before] > 0)
        if left.any():
            yield Finding(
                after[left],
                "rms",
                now.rms[after[left]],
                np.nan,
                lambda *_: "The reduction left this rank's gradient as it was, though other ranks' differ.",
            )
        for rank in np.unique(ranks).tolist():
            of = (ranks == rank) & ~left & np.isfinite(mean[groups]) & ~now.nonfinite[after]
            one, other = now.rows[after[of], 1], mean[groups[of]]
            weight = 1 / np.maximum(now.rms[before[of]], 1e-150) ** 2
            square = float((weight * other * other).sum())
            if of.sum() < 4 or not square:
                continue
            scale = float((weight * one * other).sum()) / square
            earlier = now.remember(("reduction", rank), scale)
            # Before there is a usual scale: the mean, or the sum.
            usual = (
                float(np.median(earlier))
                if len(earlier) >= 4
                else min((1.0, float(n and len(np.unique(ranks)))), key=lambda s: abs(s - scale))
            )
            yield from self._changed(scale, usual, after[of][:1])

    def _of_shards(self, now: StepTable) -> Iterator[Finding]:
        """Find a changed scale over all ranks: the mean of each tensor's shards to that of the ranks."""
        after, of_after, before, of_before = now.layout.joined("grad", "grad_unreduced")
        count, mean = now.rows[:, 0], now.rows[:, 1]
        n = int(of_before.max()) + 1
        one, other = (
            np.bincount(of, count[rows] * mean[rows], n) / np.bincount(of, count[rows], n)
            for rows, of in ((after, of_after), (before, of_before))
        )
        size = np.bincount(of_before, now.rms[before], n) / np.bincount(of_before, minlength=n)
        judged = np.isfinite(one) & np.isfinite(other) & (size > 0)
        for rows, of in ((after, of_after), (before, of_before)):
            judged[of[now.nonfinite[rows]]] = False
        weight = 1 / np.maximum(size[judged], 1e-150) ** 2
        square = float((weight * other[judged] ** 2).sum())
        if judged.sum() < 4 or not square:
            return
        scale = float((weight * one[judged] * other[judged]).sum()) / square
        # Some divide by tokens: what is usual shows.
        earlier = now.remember(("reduction", -1), scale)
        if len(earlier) >= 4:
            yield from self._changed(scale, float(np.median(earlier)), after[:1])

    def _changed(self, scale: float, usual: float, row: NDArray[np.intp]) -> Iterator[Finding]:
        if abs(scale - usual) > self.tolerance * usual:
            yield Finding(
                row,
                "scale",
                scale,
                usual,
                lambda value, expected: (
                    f"The reduced gradients are {value:.3g} times the mean of what the ranks gave, and "
                    f"should be {expected:.3g} times that."
                ),
            )


@dataclass(frozen=True)
class Missing(Rule):
    """A rank or a micro-batch that always was in a step is not in this one, or fewer values than ever were: a
    part of the batch was left out.
    """

    name = "missing"
    title = "Missing part"
    steps: float = number("Steps", "In how many steps in a row it must have been there before.", 1, 64, 16)

    def find(self, now: StepTable) -> Iterator[Finding]:
        layout = now.layout
        rows = layout.rows("activation")
        for rank in layout.ranks_of("activation"):
            of = rows[layout.ranks[rows] == rank]
            of = of[np.isfinite(now.rows[of, 0])]
            of = of[~layout.matching("expert")[of]]
            if not len(of):
                continue
            # What is there and not finite is not missing.
            lost = sum(np.nan_to_num(now.column(name)[of]) for name in ("nan_count", "inf_count"))
            count = float((now.rows[of, 0] + lost).sum())
            key = ("count", rank, len(now.layout.chunks[0].names), layout.different_names)
            earlier = now.remember(key, count)[-int(self.steps) :]
            if len(earlier) >= self.steps and min(earlier) == max(earlier) and count < 0.97 * earlier[-1]:
                yield Finding(
                    of[:1],
                    "count",
                    count / len(of),
                    earlier[-1] / len(of),
                    lambda value, expected: (
                        f"Only {percent(value / expected)} of the usual values came: a micro-batch or a part "
                        "of the batch is missing."
                    ),
                )
