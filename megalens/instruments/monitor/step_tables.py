"""Makes the tables of consecutive steps from readings: which rows there are, and the series of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...protocol import CAST_SHARES, CAST_STATS, MOMENT_COLUMNS, Readings, StepReadings
from .levels import Column, Levels, module_order, trace_order
from .table import (
    ALL,
    OPTIMIZER_RATE,
    OPTIMIZER_WRITTEN,
    QUANTITIES,
    RowBlock,
    StepTable,
    TableLayout,
    is_rounding,
    rms_of,
)

_SCALARS = re.compile(r"loss|grad.*norm|norm.*grad|^lr$|learning.rate", re.IGNORECASE)
# Largest finite value of each format, as a power of two.
_LIMITS = {"float16": 16.0, "bfloat16": 128.0, "float32": 128.0, "float8_e4m3fn": 8.8, "float8_e5m2": 15.8}
_OTHER_CASTS = frozenset(CAST_STATS) - frozenset(CAST_SHARES)
_MOST_LAYOUTS = 64
_REMEMBERED = 64
_NOTHING = np.full((1, len(MOMENT_COLUMNS)), np.nan)


class StepTables:
    """Makes the tables of consecutive steps, and numbers the series."""

    def __init__(self) -> None:
        self.levels = Levels(len(QUANTITIES))
        self._chunks: dict[tuple[Any, ...], RowBlock] = {}
        self._layouts: dict[tuple[int, ...], TableLayout] = {}
        self._numbers: dict[tuple[Any, ...], dict[str, int]] = {}
        self._series = 0
        self._rows = np.empty((0, len(MOMENT_COLUMNS)))
        self._still = self._step_of = np.empty(0, np.int64)
        self._memory: dict[Any, list[Any]] = {}
        self._rate = 0.0

    def of(self, step: StepReadings) -> StepTable:
        scalars = {
            k: float(v)
            for k, v in step.scalars.items()
            if _SCALARS.search(k) and not k.startswith(OPTIMIZER_WRITTEN)
        }
        given = [each for each in step.readings if len(each.names) and each.stat not in _OTHER_CASTS]
        parts = [*map(_measured, given), *([_NOTHING] * len(given))]
        scales = [each.loss_scale for each in given] * 2
        chunks = [self._chunk(each) for each in (*given, *map(_only, given))]
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
        return StepTable(
            *(step.step, step.samples, layout, rows, np.repeat(scales, sizes), self.levels, step.scalars),
            *(before, self._step_of[layout.series], self._stays(layout, rows, before, step.scalars)),
            *(step.sample_ids, self._rate, self._memory),
        )

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
        rate = scalars.get("lr", scalars.get(OPTIMIZER_RATE, 1.0))
        self._rate = max(self._rate, rate)
        # At the end of a schedule updates are lost to rounding.
        if len(of_param) and rate > 0.01 * self._rate:
            moved = (rows[of_param, :7] != before[of_param, :7]).any(axis=1)
            learns = ~is_rounding(rms_of(rows[of_grad]))
            still[of_param] = np.where(~moved & learns, self._still[layout.series[of_param]] + 1, 0)
        return still

    def _chunk(self, given: Readings) -> RowBlock:
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
        chunk = RowBlock(
            *(given.stat, given.rank, given.stage, given.micro_batch, given.counted),
            # The very object, so that asking whether they are the same costs nothing.
            given.names,
            tuple(given.shapes) if given.shapes else ("",) * n,
            limits if len(limits) == n else np.full(n, np.nan),
            np.array([numbers[name] for name in given.names], np.intp),
        )
        self._chunks[key] = chunk
        return chunk

    def _layout(self, chunks: tuple[RowBlock, ...]) -> TableLayout:
        key = tuple(map(id, chunks))
        known = self._layouts.get(key)
        if known is not None:
            return known
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        known = self._layouts[key] = _laid_out(chunks)
        return known


def _laid_out(chunks: tuple[RowBlock, ...]) -> TableLayout:
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


def _measured(given: Readings) -> Column:
    rows = np.asarray(given.rows, np.float64)
    if given.stat in CAST_SHARES:
        # Count and share alone: rules of sizes have nothing to say of ones and zeros.
        rows = np.concatenate((rows[:, :2], np.full((len(rows), len(MOMENT_COLUMNS) - 2), np.nan)), axis=1)
    return rows


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
