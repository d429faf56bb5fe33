"""Rules about parts of a model: how it begins, attention, experts, and the data that reach it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..levels import group_medians
from ..rule import Finding, Rule, about_all, number, percent
from ..table import ALL, StepTable, rms_of


@dataclass(frozen=True)
class Initial(Rule):
    """A weight begins much larger or smaller than the same weight of other layers, or than its width allows:
    it was initialised wrongly, or not loaded.
    """

    name = "initial"
    title = "Wrong start"
    factor: float = number(
        "Factor", "How many times as large or small as in other layers it may be.", 1.1, 1e6, 3
    )
    gain: float = number("Gain", "Largest rms times the root of the number of inputs.", 0.1, 1e6, 5)

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find weights that differ from their siblings, in the first judged step."""
        layout = now.layout
        if now.step > 1:
            return
        fresh = layout.of("param", "param_origin") & (now.past("size").seen == 0)
        rows = np.flatnonzero(fresh & layout.matching(r"weight") & np.isfinite(now.size))
        if not len(rows):
            return
        groups = layout.groups("family")[rows]
        sizes = now.size[rows]
        middle = group_medians(sizes, groups, lower=True)
        off = sizes - middle[groups]
        usual = 1.4826 * group_medians(np.abs(off), groups)[groups]
        members = np.bincount(groups)[groups]
        far = (members >= 3) & (np.abs(off) > np.maximum(np.log2(self.factor), 6 * usual))
        if far.any():
            yield Finding(
                rows[far],
                "rms",
                2.0 ** sizes[far],
                2.0 ** middle[groups][far],
                lambda value, level: (
                    f"It begins with an rms of {value:.3g}, the same weight of other layers with {level:.3g}."
                ),
            )
        inputs = np.array([_inputs(layout.shapes[row]) for row in rows])
        gain = 2.0**sizes * np.sqrt(inputs)
        large = (gain > self.gain) & ~layout.matching(r"embed|\bw[tp]e\b|norm|\bln")[rows]
        if large.any():
            yield Finding(
                rows[large],
                "rms",
                2.0 ** sizes[large],
                1 / np.sqrt(inputs[large]),
                lambda value, level: (
                    f"It begins with an rms of {value:.3g}: outputs grow {value / level:.3g} times in this "
                    "layer."
                ),
            )


def _inputs(shape: str) -> float:
    sizes = [float(part) for part in shape.strip("[]()").split(",") if part.strip().isdigit()]
    return sizes[-1] if len(sizes) == 2 else np.nan


@dataclass(frozen=True)
class AttentionCollapse(Rule):
    """Attention looks at one position only: its entropy is nearly 0, and little of the context takes part any
    more.
    """

    name = "attention"
    title = "Attention collapse"
    part: float = number("Part", "Of the highest entropy that there was, what must be left.", 0, 1, 0.05)

    def find(self, now: StepTable) -> Iterator[Finding]:
        rows = now.layout.rows("attention_entropy")
        yield from _fallen(now, rows, self.part, "The attention's entropy is {:.3g}; it was {:.3g}.")


@dataclass(frozen=True)
class RouterImbalance(Rule):
    """A router sends nearly all tokens to few experts, or cannot tell them apart: the other experts learn
    nothing.
    """

    name = "router"
    title = "Router imbalance"
    part: float = number("Part", "Of the highest entropy that there was, what must be left.", 0, 1, 0.3)
    share: float = number("Share", "Largest share of the tokens for one expert of four or more.", 0, 1, 0.8)

    def find(self, now: StepTable) -> Iterator[Finding]:
        layout = now.layout
        yield from _fallen(
            now, layout.rows("router_entropy"), self.part, "The router's entropy is {:.3g}; it was {:.3g}."
        )
        rows = np.flatnonzero(layout.of("activation") & layout.matching(r"experts\.\d+.*/input0$"))
        if not len(rows):
            return
        groups, counts = layout.groups("family")[rows], np.nan_to_num(now.rows[rows, 0])
        n = groups.max() + 1
        total, experts = np.bincount(groups, counts, n), np.bincount(groups, minlength=n)
        share = counts / total[groups]
        found = (experts[groups] >= 4) & (share > self.share)
        if found.any():
            yield Finding(
                rows[found],
                "share",
                share[found],
                1 / experts[groups][found],
                lambda value, fair: (
                    f"This expert gets {percent(value)} of the tokens; an even share is {percent(fair)}."
                ),
            )


def _fallen(now: StepTable, rows: np.ndarray, part: float, words: str) -> Iterator[Finding]:
    past = now.past("size")
    if not len(rows):
        return
    rows = rows[~np.isin(rows, now.layout.all_rows)]
    found = (past.seen[rows] >= 2) & (now.size[rows] < past.top[rows] + np.log2(part))
    rows = rows[found]
    if len(rows):
        yield Finding(
            rows,
            "mean",
            now.rows[rows, 1],
            2.0 ** past.top[rows],
            lambda value, level: words.format(value, level),
        )


@dataclass(frozen=True)
class Repeated(Rule):
    """The same data come again: the samples are those of a step before, the activations are closer to the
    last ones than two batches ever are, or the loss falls without the noise that it had.
    """

    name = "repeated"
    title = "Repeated batch"
    part: float = number(
        "Part", "Of the usual difference between two steps, what the difference may be.", 1e-6, 1, 0.05
    )
    noise: float = number("Noise", "Of the usual noise of the loss, what may be left.", 1e-6, 1, 0.12)
    steps: float = number("Steps", "In how many steps in a row.", 3, 64, 8)

    def find(self, now: StepTable) -> Iterator[Finding]:
        """Find samples, activations and losses that show that data were read twice."""
        yield from self._given_before(now)
        layout, past = now.layout, now.past("size")
        if now.nonfinite.any():
            return
        activations = layout.of("activation") & np.isfinite(now.size)
        activations[layout.all_rows] = False
        if now.sample_ids and np.flatnonzero(activations | layout.of("scalar")).size:
            known = float(hash(now.sample_ids) >> 12)
            if known in now.remember("samples", known)[-8:]:
                yield about_all(
                    np.flatnonzero(activations | layout.of("scalar")),
                    "difference",
                    0.0,
                    1.0,
                    "These samples were trained on a few steps before.",
                )
        judged = activations & (now.before_step == now.step - 1) & (past.seen >= 16) & (past.sigma > 0)
        for rank in layout.ranks_of("activation"):
            rows = np.flatnonzero(judged & (layout.ranks == rank))
            if len(rows) < _LEAST_TENSORS:
                continue
            last = np.log2(rms_of(now.before[rows]))
            moved = np.abs(now.size[rows] - last) / past.sigma[rows]
            # Of what was all zeros before, anything is far.
            worst = float(np.quantile(np.minimum(moved, 1e9), 0.95))
            if worst < self.part:
                yield about_all(
                    rows,
                    "difference",
                    worst,
                    1.0,
                    f"Activations differ from those of the step before by {worst:.2g} of what they usually "
                    "do.",
                )
        steps = int(self.steps)
        # What the model is given tells more than its loss.
        if len(layout.rows("inputs")):
            return
        for row in np.flatnonzero(layout.of("scalar") & layout.matching(r"^(train\W?)?loss$")).tolist():
            value = float(now.rows[row, 1])
            losses = np.array([*now.remember(("loss", layout.names[row]), value), value])
            if len(losses) < 3 * steps + 8:
                continue
            bends = np.abs(np.diff(losses, 2))
            usual = float(np.median(bends[:-steps]))
            if usual > 1e-3 * abs(value) and bends[-steps:].max() < self.noise * usual:
                yield about_all(
                    np.array([row]),
                    "difference",
                    float(bends[-steps:].max()) / usual,
                    1.0,
                    "The loss has lost its noise, as it does on one batch that is read again and again.",
                )

    def _given_before(self, now: StepTable) -> Iterator[Finding]:
        """Find what the model was given that it was given before, at once or in turns."""
        steps = int(self.steps)
        for row in now.layout.rows("inputs").tolist():
            if now.layout.names[row] == ALL:
                continue
            rank = int(now.layout.ranks[row])
            number = int(now.rows[row, 1]), int(now.rows[row, 0])
            numbers = [*now.remember(("inputs", rank), number), number]
            for turn in range(1, len(numbers) - 1):
                last = 1 if turn == 1 else steps
                same = numbers[-last:] == numbers[-last - turn : -turn]
                # That one batch comes twice is told at once; and of a turn of some, once it goes on. Nothing
                # else ever came where a step takes all data.
                if (
                    same
                    and len(numbers) >= last + turn
                    and _different(numbers) > turn
                    and _different(numbers[-turn:]) in (1, turn)
                ):
                    words = (
                        "The model is given what it was given in the step before."
                        if turn == 1
                        else f"The model is given the same {turn} batches in turns, for {last} steps now."
                    )
                    yield about_all(np.array([row]), "difference", 0.0, 1.0, words)
                    break


def _different(numbers: list[tuple[int, int]]) -> int:
    """Return how many different data numbers are of, each a sum over so many calls, modulo 2**52."""
    found: list[tuple[int, int]] = []
    for total, calls in numbers:
        if all((total * others - other * calls) % (1 << 52) for other, others in found):
            found.append((total, calls))
    return len(found)


_LEAST_TENSORS = 6
