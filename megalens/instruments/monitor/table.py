"""All readings of a step as one table, so that a rule is a few operations over all tensors of all ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...protocol import LEAST_RANKS, MEMORY, MOMENT_COLUMNS, RANK_SCALAR
from .levels import Column, Levels, Past, Rows

_Found = TypeVar("_Found")

OPTIMIZER_RATE, OPTIMIZER_STEPS, OPTIMIZER_WRITTEN = "optimizer lr", "optimizer steps", "optimizer wrote "
"""Numbers that the optimizer itself gives: its largest learning rate, how many steps it counts, and, followed
by the name of a parameter, how many tensors of its state were written since its last step."""

ALL = "*"
"""Name of the series of all tensors of a statistic on a rank: the mean of their sizes."""

QUANTITIES = ("size", "peak", "change")
"""Attributes of :class:`StepTable` of which each series has a level."""

# Of the usual gradient, what is no more than its rounding.
_ROUNDING = 1e-5
_DIGITS = re.compile(r"(?<![^.])\d+(?![^.])")


def rms_of(rows: NDArray[np.float64]) -> Column:
    """Return the root of the mean square of the finite values of each row; NaN where there are none."""
    count, mean, m2 = rows[:, :3].T
    found: Column = np.sqrt(np.maximum(m2, 0) / count + mean * mean)
    return found


def is_rounding(gradients: Column) -> NDArray[np.bool_]:
    """Return which gradients, by their rms, are rounding alone, as that of a bias before a batch norm is, or
    not known.
    """
    usual = np.nanmedian(gradients) if np.isfinite(gradients).any() else 0.0
    found: NDArray[np.bool_] = ~(gradients > _ROUNDING * usual)
    return found


@dataclass(frozen=True, eq=False)
class RowBlock:
    """What is constant from step to step in the readings of one process and statistic."""

    stat: str
    rank: int
    stage: int
    micro_batch: int
    counted: bool
    names: Sequence[str]
    shapes: Sequence[str]
    limits: Column
    series: Rows


@dataclass(eq=False)
class TableLayout:
    """The rows of a table, shared by all steps with the same rows, so that what follows is computed once.

    Attributes
    ----------
    ranks, stages, micro_batches, counted, place : ndarray
        Of each row; ``place`` as in the stream ``alarms``.
    series : ndarray
        Number of each row's series, the same in every step.
    limits : ndarray
        Largest exponent of two in the tensor's format; NaN where it is not known.
    """

    stats: list[str]
    names: list[str]
    shapes: list[str]
    ranks: NDArray[np.int64]
    stages: NDArray[np.int64]
    micro_batches: NDArray[np.int64]
    counted: NDArray[np.bool_]
    place: NDArray[np.int64]
    series: Rows
    limits: Column
    chunks: tuple[RowBlock, ...]
    _found: dict[Any, Any] = field(default_factory=dict)

    def rows(self, *stats: str) -> Rows:
        return self.once(("rows", *stats), lambda: np.flatnonzero(np.isin(self._stat_names, stats)))

    def ranks_of(self, stat: str) -> list[int]:
        return self.once(("ranks", stat), lambda: np.unique(self.ranks[self.rows(stat)]).tolist())

    @cached_property
    def different_names(self) -> int:
        return len({*self.names})

    def of(self, *stats: str) -> NDArray[np.bool_]:
        """Return for each row whether it is of one of these statistics."""
        return self.once(("of", *stats), lambda: np.isin(self._stat_names, stats))

    @cached_property
    def tensors(self) -> NDArray[np.bool_]:
        """Whether each row is of a tensor's own values: no training-loop number, nothing of two tensors."""
        return ~self.of("gradient_direction", "inputs", "scalar", RANK_SCALAR, MEMORY)

    def matching(self, pattern: str) -> NDArray[np.bool_]:
        """Return for each row whether its name matches somewhere."""
        made = re.compile(pattern, re.IGNORECASE)
        return self.once(
            ("matching", pattern), lambda: np.array([bool(made.search(n)) for n in self.names], bool)
        )

    def pairs(self, one: str, other: str) -> tuple[Rows, Rows]:
        """Return the rows of two statistics of the same tensor on the same rank."""

        def find() -> tuple[Rows, Rows]:
            there = {(self.names[at], self.ranks[at]): at for at in self.rows(other).tolist()}
            both = [
                (at, there[key])
                for at in self.rows(one).tolist()
                if (key := (self.names[at], self.ranks[at])) in there and self.names[at] != ALL
            ]
            array = np.array(both, np.intp).reshape(-1, 2)
            return array[:, 0], array[:, 1]

        return self.once(("pairs", one, other), find)

    def joined(self, one: str, other: str) -> tuple[Rows, NDArray[np.int64], Rows, NDArray[np.int64]]:
        """Return the rows of two statistics of tensors that have both on any ranks, with tensor numbers."""

        def find() -> tuple[Rows, NDArray[np.int64], Rows, NDArray[np.int64]]:
            both = {self.names[at] for at in self.rows(one).tolist()}
            both &= {self.names[at] for at in self.rows(other).tolist()} - {ALL}
            number = {name: at for at, name in enumerate(sorted(both))}
            found = []
            for stat in (one, other):
                rows = np.array([at for at in self.rows(stat).tolist() if self.names[at] in both], np.intp)
                found += [rows, np.array([number[self.names[at]] for at in rows.tolist()], np.int64)]
            return found[0], found[1], found[2], found[3]

        return self.once(("joined", one, other), find)

    def several(self) -> Rows:
        """Return the rows that at least :data:`LEAST_RANKS` ranks report of their own data."""

        def find() -> Rows:
            groups = self.groups("tensor")
            ranks = np.bincount(groups, minlength=1)
            own = "activation", "dgrad", "residual", "residual_dgrad", "grad_unreduced", RANK_SCALAR
            judged = self.of(*own) & (ranks[groups] >= LEAST_RANKS)
            judged[self.all_rows] = False
            return np.flatnonzero(judged)

        return self.once("several", find)

    def groups(self, what: str) -> NDArray[np.int64]:
        """Return each row's group number.

        ``tensor``: the same tensor and micro-batch on any rank; ``family``: the same tensor in any layer of a
        rank; ``set``: all of a statistic on a rank.
        """

        def find() -> NDArray[np.int64]:
            keys: dict[Any, int] = {}
            found = np.empty(len(self.names), np.int64)
            for at, (stat, name) in enumerate(zip(self.stats, self.names, strict=True)):
                if what == "tensor":
                    key: Any = (stat, name, self.micro_batches[at])
                elif what == "family":
                    key = (stat, self.ranks[at], self.micro_batches[at], _DIGITS.sub("#", name))
                else:
                    key = (stat, self.ranks[at], self.micro_batches[at])
                found[at] = keys.setdefault(key, len(keys))
            return found

        return self.once(("groups", what), find)

    @cached_property
    def all_rows(self) -> Rows:
        """The rows that are sums over all tensors of a set."""
        return np.flatnonzero(np.array([name == ALL for name in self.names], bool))

    @cached_property
    def _stat_names(self) -> NDArray[Any]:
        return np.array(self.stats)

    def once(self, key: Any, find: Callable[[], _Found]) -> _Found:
        """Return the cached result of ``find`` under a key: it follows from the layout alone."""
        if key not in self._found:
            self._found[key] = find()
        found: _Found = self._found[key]
        return found


@dataclass(eq=False)
class StepTable:
    """One step as rules see it: arrays with one entry a tensor, and the history.

    ``rows`` are float64 ``[n, k]``, the columns of :data:`MOMENT_COLUMNS`; rows of scalars have count 1.
    ``step`` and ``samples`` are those of :class:`StepReadings`.
    """

    step: int
    samples: int
    layout: TableLayout
    rows: NDArray[np.float64]
    loss_scale: Column
    levels: Levels
    scalars: Mapping[str, float]
    before: NDArray[np.float64]
    """The rows when they were last measured; NaN where they never were."""
    before_step: NDArray[np.int64]
    """The step at which that was."""
    still: NDArray[np.int64]
    """Consecutive steps, up to this one, in which a parameter had a gradient and did not change."""
    sample_ids: str = ""
    largest_rate: float = 0.0
    """Largest learning rate so far."""
    memory: dict[Any, list[Any]] = field(default_factory=dict)
    """Numbers or arrays of earlier steps that rules store under their own keys, oldest first."""
    _memory: dict[Any, Any] = field(default_factory=dict)
    _past: dict[str, Past] = field(default_factory=dict)

    @cached_property
    def rate(self) -> float:
        """The learning rate as it was logged, or else as the optimizer had it; NaN where it is not known."""
        return self.scalars.get("lr", self.scalars.get(OPTIMIZER_RATE, np.nan))

    @property
    def optimizer_rate(self) -> float:
        """The largest learning rate that the optimizer itself has; as it was logged where it is not known."""
        return self.scalars.get(OPTIMIZER_RATE, self.rate)

    def remember(self, key: Any, value: Any) -> list[Any]:
        """Store a number or an array for later steps, and return those of earlier ones."""
        self._memory[key] = value
        return self.memory.get(key, [])

    def past(self, quantity: str) -> Past:
        """Return the history of the series before this step, of one of :data:`QUANTITIES`."""
        past = self._past.get(quantity)
        if past is None:
            at = QUANTITIES.index(quantity)
            past = self._past[quantity] = self.levels.past(at, self.layout.series, getattr(self, quantity))
        return past

    def column(self, name: str) -> Column:
        """Return one of :data:`MOMENT_COLUMNS`; NaN where these rows lack it."""
        at = MOMENT_COLUMNS.index(name) if name in MOMENT_COLUMNS else self.rows.shape[1]
        return self.rows[:, at] if at < self.rows.shape[1] else np.full(len(self.rows), np.nan)

    @cached_property
    def rms(self) -> Column:
        """Root of the mean square of the finite values; NaN where there are none."""
        return rms_of(self.rows)

    @cached_property
    def size(self) -> Column:
        """Power of two of the rms: −inf where all is zero, NaN where unknown."""
        return self._log2(self.rms)

    @cached_property
    def peak(self) -> Column:
        """Power of two of the largest absolute value, as :attr:`size`."""
        return self._log2(self.largest)

    @cached_property
    def largest(self) -> Column:
        return np.maximum(np.abs(self.column("min")), np.abs(self.column("max")))

    @cached_property
    def change(self) -> Column:
        """Power of two of the shift of a parameter's mean and deviation since the last step; else NaN.

        It is at most the rms of the update.
        """
        found = np.full(len(self.rows), np.nan)
        rows = self.layout.rows("param")
        if len(rows):
            count, mean, m2 = self.rows[rows, :3].T
            before = self.before[rows]
            std, std_before = (
                np.sqrt(np.maximum(m2, 0) / count),
                np.sqrt(np.maximum(before[:, 2], 0) / count),
            )
            moved = np.hypot(mean - before[:, 1], std - std_before)
            found[rows] = np.where(self.before_step[rows] == self.step - 1, moved, np.nan)
            # A parameter that is unchanged, or that rounding changes, says nothing about the size of updates.
            found[found == 0] = np.nan
            of_param, of_grad = self.layout.pairs("param", "grad")
            found[of_param[is_rounding(self.rms[of_grad])]] = np.nan
        return self._log2(found)

    def _log2(self, values: Column) -> Column:
        """Return powers of two; of a set's total row their mean."""
        found = np.log2(values)
        found[found == np.inf] = np.nan
        layout = self.layout
        all_rows, sets = layout.all_rows, layout.groups("set")
        if len(all_rows):
            there = np.isfinite(found)
            there[all_rows] = False
            n = sets.max() + 1
            mean = np.bincount(sets[there], found[there], n) / np.bincount(sets[there], minlength=n)
            # The mean of the rest says nothing about the set.
            mean[sets[self.nonfinite]] = np.nan
            found[all_rows] = mean[sets[all_rows]]
        return found

    @cached_property
    def nonfinite(self) -> NDArray[np.bool_]:
        """Whether a row has values that are NaN or infinite."""
        return (self.column("nan_count") > 0) | (self.column("inf_count") > 0)
