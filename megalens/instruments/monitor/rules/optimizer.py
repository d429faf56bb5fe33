"""Rules about the optimizer: its state obeys an equation, from which its constants follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ....protocol import MOMENT_COLUMNS
from ..rule import Finding, Rule, about_all, number, says
from ..table import OPTIMIZER_STEPS, OPTIMIZER_WRITTEN, StepTable

_LEAST = 6
_STATES = {"exp_avg": "beta1", "exp_avg_sq": "beta2"}
# Of a state, within which the equation holds, and but for rounding; and which part of the tensors may be odd.
_HOLDS, _EXACT, _MOST_ODD, _FEWEST = 1e-4, 1e-6, 0.3, 4
# Steps in which nothing but the optimizer wrote its state.
_UNWRITTEN = 16


@dataclass(frozen=True)
class Followed:
    """What the state of one rank's parameters follows: state = a · old state + b · gradient, or its square.

    Of Adam a is beta and b is 1 − beta, times what clipping left. ``rows`` are the states, ``odd`` those that
    do not follow while all others do, with their ``value``, what it should be and what the old state alone
    would give, each as a part of the state's rms.
    """

    a: float
    b: float
    rows: NDArray[np.intp]
    odd: NDArray[np.intp]
    value: NDArray[np.float64]
    expected: NDArray[np.float64]
    idle: NDArray[np.float64]


def follows(now: StepTable, stat: str, rank: int) -> Followed | None:
    """Return the equation that a rank's states follow; None where they follow none.

    Means are linear: that of ``exp_avg`` follows the gradients' means, and that of ``exp_avg_sq`` their mean
    squares.
    """
    layout = now.layout
    of, grads = layout.pairs(stat, "grad")
    here = (layout.ranks[of] == rank) & ~now.nonfinite[of] & ~now.nonfinite[grads]
    of, grads = of[here], grads[here]
    if len(of) < _LEAST:
        return None
    new = now.rows[of, 1]
    old = np.where(now.before_step[of] == now.step - 1, now.before[of, 1], np.nan)
    if np.isnan(old).all():
        old = np.zeros(len(of))
    gave = now.rms[grads] ** 2 if stat == "exp_avg_sq" else now.rows[grads, 1]
    scale = now.rms[of]
    good = np.isfinite(old) & (scale > 0) & (now.rms[grads] > 0)
    of = of[good]
    x = np.stack((old, gave), axis=1)[good] / scale[good, None]
    y = new[good] / scale[good]
    if len(y) < _LEAST:
        return None
    most = _HOLDS * max(np.abs(y).max(), 1e-30)
    solution = _solved(x, y)
    if solution is not None and np.abs(y - x @ solution).max() <= most:
        odd = np.zeros(len(y), bool)
    else:
        # Nearly all follow what all did in the steps before.
        usual = now.memory.get((_STATES[stat], rank), ())[-8:]
        if len(usual) < 3:
            return None
        a = float(np.median(usual))
        slopes = (y - a * x[:, 0]) / x[:, 1]
        order = np.argsort(slopes)
        weights = np.cumsum(np.abs(x[order, 1]))
        b = float(slopes[order[np.searchsorted(weights, weights[-1] / 2)]])
        odd = np.abs(y - x @ np.array([a, b])) > most
        if odd.sum() > _MOST_ODD * len(y) or len(y) - odd.sum() < _FEWEST:
            return None
        solution = _solved(x[~odd], y[~odd])
        # An optimizer that adds to gradients (weight decay in Adam) nearly follows.
        if solution is None or np.abs(y - x @ solution)[~odd].max() > _EXACT:
            return None
    a, b = map(float, solution)
    return Followed(a, b, of, of[odd], y[odd], x[odd] @ solution, a * x[odd, 0])


def _solved(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64] | None:
    if not x[:, 0].any():
        square = float(x[:, 1] @ x[:, 1])
        return np.array([0.0, float(x[:, 1] @ y) / square]) if square else None
    solution, _, rank_of, _ = np.linalg.lstsq(x, y, rcond=1e-6)
    return np.asarray(solution, np.float64) if rank_of == 2 else None


@dataclass(frozen=True)
class OptimizerState(Rule):
    """The optimizer's state is new although training is under way, or something else wrote it, or its betas
    are unusual or change: what it had learnt is lost, or it averages over the wrong time.
    """

    name = "optimizer"
    title = "Optimizer state"
    beta1_max: float = number("Largest beta1", "Above it the momentum is unusually slow.", 0, 1, 0.985)
    beta2_min: float = number(
        "Smallest beta2", "Below it squares are averaged over too few steps.", 0, 1, 0.89
    )
    change: float = number("Change", "By how much a beta may change from step to step.", 1e-4, 1, 0.02)

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find wrong betas, by the equation that state and gradients obey."""
        yield from self._written(now)
        yield from self._counted_anew(now)
        for stat, beta in _STATES.items():
            for rank in now.layout.ranks_of(stat):
                found = follows(now, stat, rank)
                if found is None:
                    continue
                a, rows = found.a, found.rows
                first = not (now.before_step[rows] == now.step - 1).any()
                if first:
                    # A new state is expected at the very first step, and of what was not trained before.
                    if now.step > 1 and (now.before_step < 0).all():
                        yield about_all(
                            rows,
                            "state",
                            0.0,
                            np.nan,
                            "It is the state after a first step, though this is a later one: it was lost.",
                        )
                    continue
                if now.step <= 2:
                    continue
                earlier = now.remember((beta, rank), a)
                yield from self._odd(now, stat, rank, found)
                usual = float(np.median(earlier)) if len(earlier) >= 3 else np.nan
                if abs(a - usual) > self.change:
                    if abs(a) < 1e-3:
                        words = "What it held was forgotten: it holds this step's gradient only."
                    else:
                        words = f"It follows {beta} {a:.4g} now, {usual:.4g} before."
                    yield about_all(rows, beta, a, usual, words)
                elif beta == "beta1" and not 0.3 < a < self.beta1_max:
                    yield about_all(rows, beta, a, 0.9, f"It follows beta1 {a:.4g}; usual is 0.9.")
                elif beta == "beta2" and a < self.beta2_min:
                    yield about_all(
                        rows, beta, a, 0.999, f"It follows beta2 {a:.4g}; usual is 0.95 to 0.999."
                    )

    def _written(self, now: StepTable) -> Iterator[Finding]:
        """Find parameters whose state was written since the optimizer's last step, and never was before."""
        names = {key[len(OPTIMIZER_WRITTEN) :] for key in now.scalars if key.startswith(OPTIMIZER_WRITTEN)}
        before = now.remember(OPTIMIZER_WRITTEN, bool(names))
        if not names or len(before) < _UNWRITTEN or any(before):
            return
        rows = now.layout.rows("exp_avg")
        rows = rows if len(rows) else now.layout.rows("param")
        rows = np.array([at for at in rows.tolist() if now.layout.names[at] in names], np.intp)
        if len(rows):
            words = "Something else than the optimizer wrote it since the optimizer's last step."
            yield Finding(rows, "state", np.nan, np.nan, partial(says, words))

    def _counted_anew(self, now: StepTable) -> Iterator[Finding]:
        """Find an optimizer that counts fewer steps than before."""
        count, rows = now.scalars.get(OPTIMIZER_STEPS), now.layout.rows("exp_avg")
        if count is None or not len(rows):
            return
        earlier = now.remember(OPTIMIZER_STEPS, count)
        if earlier and count < earlier[-1]:
            yield about_all(
                rows, "steps", count, earlier[-1] + 1,
                f"The optimizer counts {count:,.0f} steps, and {earlier[-1]:,.0f} the step before: it "
                "corrects its means as at the start, so that updates have another size.",
            )  # fmt: skip

    def _odd(self, now: StepTable, stat: str, rank: int, found: Followed) -> Iterator[Finding]:
        """Find tensors whose state does not follow from their gradient, while that of all others does."""
        before = now.remember(("odd", stat, rank), len(found.odd))
        if not len(found.odd) or len(before) < 3 or any(before):
            return
        nothing = np.abs(found.value - found.idle) <= _HOLDS
        for which, words in (
            (nothing, "The optimizer took nothing of its gradient: it was zero when the optimizer came."),
            (~nothing, "It does not follow from its gradient and what it was: one of them was written."),
        ):
            if which.any():
                yield Finding(
                    found.odd[which],
                    "state",
                    found.value[which],
                    found.expected[which],
                    partial(says, words),
                )


@dataclass(frozen=True)
class Clipping(Rule):
    """Gradients were clipped at a norm in the steps before, and larger ones now are not: one broken batch can
    undo much of the training.
    """

    name = "clipping"
    title = "Not clipped"
    factor: float = number(
        "Factor", "How many times the usual norm after clipping it may be.", 1.001, 100, 1.2
    )

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find steps with unclipped gradients above the norm at which it clipped."""
        for rank in now.layout.ranks_of("exp_avg"):
            found = follows(now, "exp_avg", rank)
            if found is None or now.step <= 2:
                continue
            a, b, rows = found.a, found.b, found.rows
            if not 0.3 < a < 0.999:
                continue
            grads = now.layout.rows("grad")
            grads = grads[(now.layout.ranks[grads] == rank) & np.isfinite(now.rows[grads, 0])]
            norm = float(np.sqrt(np.nansum(now.rms[grads] ** 2 * now.rows[grads, 0])))
            taken = b / (1 - a)
            applied = norm * taken
            clipped = now.remember(("clipped", rank), applied if taken < 0.98 else np.nan)
            yield from self._nothing(now, rank, applied, rows)
            known = [each for each in clipped if each == each][-8:]
            if len(known) >= 4 and max(known) < 1.05 * min(known) and applied > self.factor * max(known):
                yield about_all(
                    rows, "norm", applied, max(known),
                    f"The gradients' norm of {applied:.3g} was taken whole; before it was clipped at "
                    f"{max(known):.3g}.",
                )  # fmt: skip

    def _nothing(
        self, now: StepTable, rank: int, applied: float, rows: NDArray[np.intp]
    ) -> Iterator[Finding]:
        before = now.remember(("applied", rank), applied)[-8:]
        if len(before) >= 4 and applied < _NOTHING * min(before):
            yield about_all(
                rows, "norm", applied, min(before),
                "The optimizer took nothing of the gradients: all were zero when it came, though the "
                "backward pass gave some.",
            )  # fmt: skip


@dataclass(frozen=True)
class UpdateRatio(Rule):
    """The update is far too large or small beside the weight that it changes: a step of the optimizer
    replaces the weight, or leaves it practically as it is; or a weight moves further than the optimizer can
    move it.
    """

    name = "update_ratio"
    title = "Update-to-weight ratio"
    largest: float = number("Largest", "Largest update as a part of the weight.", 1e-6, 1e6, 0.5)
    smallest: float = number("Smallest", "Smallest update as a part of the weight.", 0, 1, 1e-8)
    steps: float = number("Steps", "How many steps a weight has to be known before.", 1, 10000, 32)

    def find(self, now: StepTable) -> Iterator[Finding]:
        layout = now.layout
        rate = now.rate
        of, first = layout.pairs("param", "exp_avg")
        if not len(of) or not rate > 0:
            return
        squares, found = layout.pairs("exp_avg_sq", "param")
        square = np.full(len(now.rows), np.nan)
        square[found] = now.rows[squares, 1]
        ratio = rate * now.rms[first] / np.sqrt(square[of]) / now.rms[of]
        # A bias begins at zero, and scales of norms are few values.
        judged = (
            (now.past("size").seen[of] >= self.steps) & layout.matching(r"weight")[of] & (now.rms[of] > 0)
        )
        judged &= ~layout.matching(r"norm|\bln")[of] & (rate > 0.01 * now.largest_rate)
        yield from self._written(now, of[judged])
        for wrong, limit, words in (
            (
                ratio > self.largest,
                self.largest,
                "The update is {:.2g} of the weight; it should be below {:.2g}.",
            ),
            (
                ratio < self.smallest,
                self.smallest,
                "The update is only {:.2g} of the weight; it should be above {:.2g}.",
            ),
        ):
            rows = np.flatnonzero(judged & wrong)
            if len(rows):
                yield Finding(of[rows], "ratio", ratio[rows], limit, words.format)

    def _written(self, now: StepTable, rows: NDArray[np.intp]) -> Iterator[Finding]:
        """Find weights whose extremes moved further than any step of Adam can: something else wrote them."""
        before = now.before[rows]
        moved = np.abs(now.rows[rows, _EXTREMES] - before[:, _EXTREMES]).max(axis=1)
        moved[now.before_step[rows] != now.step - 1] = np.nan
        # Other parameter groups may have a larger learning rate than the logged one: their weights always
        # move so.
        key = ("moved", rows.tobytes())
        usual = now.remember(key, moved)[-16:]
        if len(usual) < 4:
            return
        most = _ADAM * now.largest_rate * (1 + np.abs(before[:, _EXTREMES]).max(axis=1))
        found = moved > np.maximum(most, 4 * np.fmax.reduce(usual))
        if found.any():
            yield Finding(
                rows[found],
                "update",
                moved[found],
                most[found],
                lambda value, most: (
                    f"Its largest or smallest value moved by {value:.3g} in this step; at this learning rate "
                    f"the optimizer moves none by more than {most:.3g}. Something else wrote these weights."
                ),
            )


# Of the least norm that was taken, what is nothing.
_NOTHING = 1e-3
_EXTREMES = slice(MOMENT_COLUMNS.index("min"), MOMENT_COLUMNS.index("max") + 1)
# |m| / √v of Adam is at most (1 − β1) / √(1 − β2), 3.2 of the usual betas, or 1.
_ADAM = 10.0
