"""Rules over the values of one tensor against its recent level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..levels import median_of
from ..rule import Finding, Rule, number
from ..table import StepTable, rms_of

THRESHOLD = "How many usual deviations from the level of the last steps it may be off."
FACTOR = "And at least how many times as large or small it must be."


_GRADIENT_FACTOR = (
    "The same for gradients and what follows from them: single batches of a healthy training are far apart."
)
# The mean over all tensors of a rank strays less than each: these roots of the factor are enough.
_ROOT_OF_ALL, _ROOT_OF_GRADIENTS = 2.0, 1.6
# While the rate rises, single values of a weight may grow by so many doublings more.
_WARM_UP_BITS = 2.0
# So many doublings of all updates at once are reported in any case.
_SURE_BITS = 2.5
_GRADIENTS = (
    *("grad", "grad_unreduced", "grad_accumulated", "dgrad", "residual_dgrad"),
    *("exp_avg", "exp_avg_sq", "communication"),
)


def _least(now: StepTable, factor: float, gradient_factor: float, of_rms: bool = True) -> np.ndarray:
    return now.layout.once(
        ("least", factor, gradient_factor, of_rms),
        lambda: _find_least(now, factor, gradient_factor, of_rms),
    )


def _find_least(now: StepTable, factor: float, gradient_factor: float, of_rms: bool) -> np.ndarray:
    gradients = now.layout.of(*_GRADIENTS)
    bits = np.where(gradients, np.log2(gradient_factor), np.log2(factor))
    roots = np.ones(len(bits))
    if of_rms:
        # A weight is the sum of all steps: no single one changes it much, except single values or a zero
        # bias.
        roots[now.layout.of("param", "param_origin") & ~now.layout.matching("bias")] = 2
    # It is of squares.
    roots[now.layout.of("exp_avg_sq")] = 0.5
    of_all = now.layout.all_rows
    roots[of_all] *= np.where(gradients, _ROOT_OF_GRADIENTS, _ROOT_OF_ALL)[of_all]
    least: np.ndarray = bits / roots
    return least


def off_level(
    now: StepTable, quantity: str, threshold: float, least: np.ndarray | float, most: float = np.inf
) -> np.ndarray:
    """Return each row's signed deviation where it is too large; else 0."""
    past = now.past(quantity)
    limit = np.maximum(least, np.minimum(threshold * past.sigma, most))
    return np.where(np.abs(past.settled) > limit, past.settled, 0.0)


@dataclass(frozen=True)
class Jump(Rule):
    """Values are suddenly much larger than they were in the steps before: a broken batch, a flipped bit, or a
    training that begins to diverge.
    """

    name = "jump"
    title = "Jump"
    threshold: float = number("Threshold", THRESHOLD, 2, 1000, 10)
    factor: float = number("Factor", FACTOR, 1.01, 1e6, 4)
    gradient_factor: float = number("Factor of gradients", _GRADIENT_FACTOR, 1.01, 1e9, 16384)

    def find(self, now: StepTable) -> Iterator[Finding]:
        judged = now.layout.tensors
        rises = now.rate > 1.02 * (now.remember("rate", now.rate) or [np.inf])[-1]
        for quantity, statistic in (("size", "rms"), ("peak", "max_abs"), ("change", "update")):
            least = _least(now, self.factor, self.gradient_factor, quantity == "size")
            # Half is enough of an update that is also above all before it.
            threshold = self.threshold / 2 if quantity == "change" else self.threshold
            if quantity == "peak" and rises:
                least = np.where(now.layout.of("param"), least + _WARM_UP_BITS, least)
            # The size of Adam's updates is that of the learning rate, however noisy it was while that rose.
            sure = quantity == "change" and len(now.layout.rows("exp_avg_sq"))
            off = off_level(now, quantity, threshold, least, _SURE_BITS if sure else np.inf)
            found = (off > 0) & judged
            if quantity == "change" and found.any():
                # One tensor's mean may settle at any time; earlier magnitudes are no news.
                found &= ~now.layout.matching(r"^[^*]") & ~(now.change < now.past("change").top + 1)
            rows = np.flatnonzero(found)
            if len(rows):
                yield relative_to(now, quantity, statistic, rows)


@dataclass(frozen=True)
class Collapse(Rule):
    """Values are suddenly much smaller than they were in the steps before: something is left out, scaled
    wrongly, or was reset.
    """

    name = "collapse"
    title = "Collapse"
    threshold: float = number("Threshold", THRESHOLD, 2, 1000, 10)
    factor: float = number("Factor", FACTOR, 1.01, 1e6, 8)
    gradient_factor: float = number("Factor of gradients", _GRADIENT_FACTOR, 1.01, 1e9, 16384)

    def find(self, now: StepTable) -> Iterator[Finding]:
        off = off_level(now, "size", self.threshold, _least(now, self.factor, self.gradient_factor))
        # A single value passes zero now and then.
        single = now.layout.of("param") & (now.column("count") < _SEVERAL)
        rows = np.flatnonzero((off < 0) & now.layout.tensors & ~single)
        if len(rows):
            yield relative_to(now, "size", "rms", rows)


@dataclass(frozen=True)
class Drift(Rule):
    """Values have moved for good to another level, or the loss rises slowly: something changed in the
    training, or it begins to diverge.
    """

    name = "drift"
    title = "Drift"
    threshold: float = number(
        "Threshold", "How many usual changes of the level the change must be.", 2, 1000, 10
    )
    factor: float = number("Factor", "And at least how many times as large or small.", 1.01, 1e6, 3)
    loss_factor: float = number(
        "Loss factor", "How many times its lowest level the loss may be.", 1.01, 1000, 1.3
    )

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find tensors whose last levels differ from those before by more than levels usually do."""
        yield from self._grown(now)
        past = now.past("size")
        few = now.layout.of(*_GRADIENTS) & (now.column("count") < _FEW)
        least = _least(now, self.factor, self.factor) + np.where(few, _FEW_BITS, 0.0)
        loss = now.layout.of("scalar") & now.layout.matching("loss")
        rows = np.flatnonzero(past.new_block & (loss | now.layout.tensors))
        if not len(rows):
            return
        blocks = past.blocks(rows)
        known = np.isfinite(blocks[:, -8:]).all(axis=1)
        rows, blocks = rows[known], blocks[known]
        moves = np.abs(np.diff(blocks[:, :-1], axis=1))
        # What stays as it is to the last bit is not trained, and says nothing.
        usual = np.nan_to_num(1.4826 * median_of(np.where(moves == 0, np.nan, moves)))
        # A loss falls as a rule: that it is above its lowest is found however slowly it came there.
        of_loss = loss[rows]
        before = np.where(of_loss, np.nanmin(blocks, axis=1, initial=np.inf), blocks[:, -2])
        moved = blocks[:, -1] - before
        limit = np.where(of_loss, np.log2(self.loss_factor), least[rows])
        limit = np.maximum(limit, np.where(of_loss, self.threshold / 2, self.threshold) * usual)
        found = np.where(of_loss, moved, np.abs(moved)) > limit
        if found.any():
            yield _moved(rows[found], blocks[found, -1], before[found])

    def _grown(self, now: StepTable) -> Iterator[Finding]:
        """Find parameters that have grown for some steps far faster than they ever did, at no rising rate, or
        faster than Adam can let them.
        """
        rates = [*now.remember("rate", now.rate), now.rate]
        rows = now.layout.rows("param")
        # A bias may begin anywhere, and grow by anything.
        rows = rows[~np.isin(rows, now.layout.all_rows) & ~now.layout.matching("bias")[rows]]
        known = now.before_step[rows] == now.step - 1
        before = np.where(known, rms_of(now.before[rows]), np.nan)
        growth, moved = now.size[rows] - np.log2(before), (now.rms[rows] - before) / now.optimizer_rate
        growth[growth == 0] = np.nan
        key = now.layout.series[rows].tobytes()
        earlier = np.array(now.remember(("growth", key), growth))
        moves = np.array([*now.remember(("moved rms", key), moved), moved])
        if len(earlier) < 2 * _GROWTH_STEPS + 8:
            return
        enough = np.isfinite(earlier).sum(axis=0) >= 2 * _GROWTH_STEPS + 8
        last = np.vstack((earlier[-_GROWTH_STEPS + 1 :], growth))
        usual = 1.4826 * median_of(np.abs(earlier[: -_GROWTH_STEPS + 1]).T)
        slowest = last.min(axis=0)
        # Healthy ones set in slowly.
        just = np.abs(earlier[-2 * _GROWTH_STEPS : -_GROWTH_STEPS + 1]).max(axis=0)
        found = slowest > np.maximum(_LEAST_GROWTH, np.maximum(_GROWTH * usual, 2 * just))
        found &= enough & (rates[-1] <= 1.05 * min(rates))
        # The rms of Adam's step is the rate at most, where all its signs agree. Others have done more before.
        most = _OF_ADAM * np.fmax(1.0, np.fmax.reduce(moves[:-_GROWTH_STEPS]))
        adam = np.isin(rows, now.layout.pairs("param", "exp_avg_sq")[0]) & (slowest > _LEAST_GROWTH)
        written = adam & (moves[-_GROWTH_STEPS:].min(axis=0) > most)
        for which, words in (
            (written, "the optimizer alone makes it grow by less: something else writes it"),
            (found & ~written, ""),
        ):
            if which.any():
                yield Finding(
                    rows[which],
                    "growth",
                    2.0 ** slowest[which] - 1,
                    2.0 ** usual[which] - 1,
                    partial(_grows, words),
                )


def _grows(words: str, value: float, usual: float) -> str:
    return (
        f"It has grown by {value:.2g} or more of itself in each of the last {_GROWTH_STEPS} steps; "
        f"{words or f'usual is {usual:.2g}'}."
    )


# A parameter of fewer values may be zero by chance.
_SEVERAL = 4
# Gradients of so few values move by so many doublings more before they count.
_FEW, _FEW_BITS = 32, 2.0
# Steps in a row in which a parameter grows by so many times what it usually does, and by so many doublings.
_GROWTH_STEPS, _GROWTH, _LEAST_GROWTH = 4, 5.0, 0.02
# In these steps its rms may grow by so many times what Adam's own step is at most.
_OF_ADAM = 2.0
_WORDS = {
    "rms": "Its rms",
    "max_abs": "Its largest value",
    "value": "It",
    "update": "The update of all of them",
}


def _moved(rows: np.ndarray, new: np.ndarray, old: np.ndarray) -> Finding:
    return Finding(
        rows,
        "level",
        2.0**new,
        2.0**old,
        lambda value, level: f"Its level is now {value:.3g}, {_times(value, level)} {level:.3g} before.",
    )


def relative_to(now: StepTable, quantity: str, statistic: str, rows: np.ndarray) -> Finding:
    words = _WORDS[statistic]
    value, level = 2.0 ** getattr(now, quantity)[rows], 2.0 ** now.past(quantity).level[rows]
    if statistic == "max_abs":
        # Exact, where one tensor has it.
        value = np.where(np.isnan(now.largest[rows]), value, now.largest[rows])
    return Finding(
        rows,
        statistic,
        value,
        level,
        lambda value, level: (
            f"{words} is {value:.3g}, {_times(value, level)} {level:.3g} of the steps before."
        ),
    )


def _times(value: float, level: float) -> str:
    up = value >= level
    factor = (value / level if up else level / value) if min(value, level) > 0 else np.inf
    return f"{factor:,.3g} times {'the' if up else 'below the'}"
