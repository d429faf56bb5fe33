"""All readings of a step as one table, so that a rule is a few operations over all tensors of all ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...protocol import LEAST_RANKS, MOMENT_COLUMNS, RANK_SCALAR, Readings, StepReadings
from .levels import Levels, Past, module_order, trace_order

Column = NDArray[np.float64]
Rows = NDArray[np.intp]
_Found = TypeVar("_Found")

ALL = "*"
"""Name of the series that stands for all tensors of a statistic on a rank: the mean of their sizes."""

QUANTITIES = ("size", "peak", "change")
"""What of each series has a level: attributes of :class:`StepTable`."""

_SCALARS = re.compile(r"loss|grad.*norm|norm.*grad|^lr$|learning.rate", re.IGNORECASE)
# Largest finite value of each format, as a power of two.
_LIMITS = {"float16": 16.0, "bfloat16": 128.0, "float32": 128.0, "float8_e4m3fn": 8.8, "float8_e5m2": 15.8}
_DIGITS = re.compile(r"(?<![^.])\d+(?![^.])")
_MOST_LAYOUTS = 64
_REMEMBERED = 64
_NOTHING = np.full((1, len(MOMENT_COLUMNS)), np.nan)


@dataclass(frozen=True, eq=False)
class _Chunk:
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
    chunks: tuple[_Chunk, ...]
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
        return ~self.of("gradient_direction", "scalar", RANK_SCALAR)

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

    Attributes
    ----------
    step, samples : int
        As in :class:`StepReadings`.
    rows : ndarray
        float64 ``[n, k]``, the columns of :data:`MOMENT_COLUMNS`; rows of scalars have count 1.
    loss_scale : ndarray
        Of each row.
    levels : Levels
        History of the series, by quantity: see :meth:`past`.
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
    """How often in a row each parameter had a gradient and stayed as it was, up to this step."""
    sample_ids: str = ""
    largest_rate: float = 0.0
    """Largest learning rate so far."""
    memory: dict[Any, list[Any]] = field(default_factory=dict)
    """Numbers, or arrays of them, of the steps before that rules keep, by whatever key, oldest first."""
    _memory: dict[Any, Any] = field(default_factory=dict)
    _past: dict[str, Past] = field(default_factory=dict)

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
        count, mean, m2 = self.column("count"), self.column("mean"), self.column("m2")
        return np.sqrt(np.maximum(m2, 0) / count + mean * mean)

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
            # An unchanged parameter says nothing about the size of updates.
            found[found == 0] = np.nan
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


class StepTables:
    """Makes the tables of consecutive steps, and numbers the series."""

    def __init__(self) -> None:
        self.levels = Levels(len(QUANTITIES))
        self._chunks: dict[tuple[Any, ...], _Chunk] = {}
        self._layouts: dict[tuple[int, ...], TableLayout] = {}
        self._numbers: dict[tuple[Any, ...], dict[str, int]] = {}
        self._series = 0
        self._rows = np.empty((0, len(MOMENT_COLUMNS)))
        self._still = self._step_of = np.empty(0, np.int64)
        self._memory: dict[Any, list[Any]] = {}
        self._rate = 0.0

    def of(self, step: StepReadings) -> StepTable:
        scalars = {k: float(v) for k, v in step.scalars.items() if _SCALARS.search(k)}
        given = [each for each in step.readings if len(each.names)]
        parts = [np.asarray(each.rows, np.float64) for each in given]
        scales = [each.loss_scale for each in given]
        complete = [_NOTHING] * len(given)
        chunks = [self._chunk(each) for each in given]
        chunks += [self._chunk(_only(each)) for each in given]
        parts += complete
        scales += scales
        if scalars:
            numbers = np.array(list(scalars.values()))
            chunks.append(self._chunk(Readings("scalar", -1, tuple(scalars), numbers[:, None])))
            parts.append(_scalar_rows(numbers))
            scales.append(1.0)
        layout = self._layout(tuple(chunks))
        width = len(MOMENT_COLUMNS)
        rows = np.concatenate([_widened(part, width) for part in parts]) if parts else np.empty((0, width))
        sizes = [len(part) for part in parts]
        before = self._rows[layout.series]
        table = StepTable(
            *(step.step, step.samples, layout, rows, np.repeat(scales, sizes), self.levels, step.scalars),
            *(before, self._step_of[layout.series], self._stays(layout, rows, before, step.scalars)),
            *(step.sample_ids, self._rate, self._memory),
        )
        return table

    def keep(self, table: StepTable) -> None:
        """Store what the next step is compared with."""
        self._rows[table.layout.series] = table.rows
        self._still[table.layout.series] = table.still
        self._step_of[table.layout.series] = table.step
        for key, value in table._memory.items():
            self._memory[key] = [*self._memory.get(key, ())[-_REMEMBERED + 1 :], value]

    def _stays(
        self, layout: TableLayout, rows: Column, before: Column, scalars: Mapping[str, float]
    ) -> NDArray[np.int64]:
        still = np.zeros(len(rows), np.int64)
        of_param, of_grad = layout.pairs("param", "grad")
        rate = scalars.get("lr", 1.0)
        self._rate = max(self._rate, rate)
        # At the end of a schedule updates are lost to rounding.
        if len(of_param) and rate > 0.01 * self._rate:
            moved = (rows[of_param, :7] != before[of_param, :7]).any(axis=1)
            learns = (rows[of_grad, 1] != 0) | (rows[of_grad, 2] != 0)
            still[of_param] = np.where(~moved & learns, self._still[layout.series[of_param]] + 1, 0)
        return still

    def _chunk(self, given: Readings) -> _Chunk:
        key = (given.stat, given.rank, given.stage, given.micro_batch, given.counted, given.names == (ALL,))
        known = self._chunks.get(key)
        if known is not None and (known.names is given.names or list(known.names) == list(given.names)):
            return known
        numbers = self._numbers.setdefault(key, {})
        before = self._series
        for name in given.names:
            if name not in numbers:
                numbers[name] = self._series
                self._series += 1
        if more := self._series - before:
            self.levels.grow(self._series)
            self._rows = np.concatenate((self._rows, np.full((more, self._rows.shape[1]), np.nan)))
            self._still = np.concatenate((self._still, np.zeros(more, np.int64)))
            self._step_of = np.concatenate((self._step_of, np.full(more, -1, np.int64)))
        n = len(given.names)
        limits = np.array([_LIMITS.get(each, np.nan) for each in given.dtypes], np.float64)
        chunk = _Chunk(
            *(given.stat, given.rank, given.stage, given.micro_batch, given.counted),
            # The very object, so that asking whether they are the same costs nothing.
            given.names,
            tuple(given.shapes) if given.shapes else ("",) * n,
            limits if len(limits) == n else np.full(n, np.nan),
            np.array([numbers[name] for name in given.names], np.intp),
        )
        self._chunks[key] = chunk
        return chunk

    def _layout(self, chunks: tuple[_Chunk, ...]) -> TableLayout:
        key = tuple(map(id, chunks))
        known = self._layouts.get(key)
        if known is not None:
            return known
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        known = self._layouts[key] = _laid_out(chunks)
        return known


def _laid_out(chunks: tuple[_Chunk, ...]) -> TableLayout:
    sizes = [len(chunk.names) for chunk in chunks]
    stats = [chunk.stat for chunk in chunks for _ in chunk.names]
    names = [name for chunk in chunks for name in chunk.names]
    ranks, stages, micro_batches = (
        np.repeat(np.array([getattr(chunk, which) for chunk in chunks], np.int64), sizes)
        for which in ("rank", "stage", "micro_batch")
    )
    index = np.empty(len(names))
    at = 0
    orders: dict[int, dict[str, float]] = {}
    for chunk in chunks:
        order = orders.get(chunk.rank)
        if order is None:
            by_stat: dict[str, Sequence[str]] = {}
            for each in chunks:
                if each.rank == chunk.rank and tuple(each.names) != (ALL,):
                    by_stat.setdefault(each.stat, each.names)
            order = orders[chunk.rank] = module_order(by_stat)
        index[at : at + len(chunk.names)] = [order.get(name, len(order)) for name in chunk.names]
        at += len(chunk.names)
    series = [chunk.series for chunk in chunks]
    return TableLayout(
        stats,
        names,
        [shape for chunk in chunks for shape in chunk.shapes],
        ranks,
        stages,
        micro_batches,
        np.repeat(np.array([chunk.counted for chunk in chunks], bool), sizes),
        trace_order(stats, names, ranks, stages, micro_batches, index),
        np.concatenate(series).astype(np.intp) if series else np.empty(0, np.intp),
        np.concatenate([chunk.limits for chunk in chunks]) if chunks else np.empty(0),
        chunks,
    )


def _only(given: Readings) -> Readings:
    return Readings(
        given.stat, given.rank, (ALL,), given.rows[:1], (), (), given.stage, given.micro_batch, given.counted
    )


def _scalar_rows(values: Column) -> Column:
    rows = np.zeros((len(values), len(MOMENT_COLUMNS)))
    finite = np.isfinite(values)
    for name, column in (
        ("count", finite),
        ("mean", np.where(finite, values, 0)),
        ("min", values),
        ("max", values),
        ("nan_count", np.isnan(values)),
        ("inf_count", np.isinf(values)),
    ):
        rows[:, MOMENT_COLUMNS.index(name)] = column
    return rows


def _widened(part: Column, width: int) -> Column:
    if part.shape[1] == width:
        return part
    return np.concatenate((part, np.full((len(part), width - part.shape[1]), np.nan)), axis=1)
