"""From a question to merged groups."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....protocol import BLOCKS, merged_names, parse_name
from ...errors import ClientError
from ..rows.pieces import STAGE, STAGES, Chunk, Listed, NotShown, Wanted
from .cells import CellKeys, Cells, merge_cells, wanted_columns
from .name_filter import module_of
from .query import Key, MomentQuery, key_order
from .series import (
    MERGED,
    Grouped,
    Part,
    Thinner,
    chosen_columns,
    keep_extremes,
    read_part,
    stretch_steps,
    stretches,
)

_AHEAD, _AHEAD_ROWS = 4, 400_000
_LOOK_SECONDS = 0.5
_INTEGERS = ("layer", "expert", "rank", "stage")

Column = NDArray[np.float64]
Integers = NDArray[np.int64]


def pick(cells: Grouped, shown: Column, query: MomentQuery) -> Integers:
    """Return which cells stay, ordered by group and step; ``shown`` is the value of each cell, by which steps
    are chosen.

    The groups that stay are those with values that are not finite or not known, then those of the greatest
    magnitude. Of each of ``points`` / 4 equal stretches of a group's steps the first, last, least and
    greatest value stay, and every one that is not finite or not known; a group of at most ``points`` steps
    stays complete.
    """
    starts = cells.starts
    ends = np.append(starts[1:], len(shown))
    long = np.zeros(len(starts), bool) if query.points is None else cells.counts > query.points
    groups = np.arange(len(starts))
    if query.series is not None and query.series < len(groups):
        size = np.where(np.isnan(cells.value), -1, np.abs(cells.value))
        size[cells.bad] = np.inf
        largest = np.argsort(-np.maximum.reduceat(size, starts), kind="stable")
        groups = np.sort(largest[: query.series])
    chosen = [np.zeros(0, np.int64)]
    for group in groups:
        one = slice(starts[group], ends[group])
        indices = np.arange(one.start, one.stop)
        if query.points is not None and long[group]:
            step = cells.step[one]
            stretch = stretches(step, step[0], step[-1], query.points)
            runs = np.flatnonzero(np.diff(stretch, prepend=-1))
            indices = indices[keep_extremes(runs, shown[one], cells.bad[one])]
        chosen.append(indices)
    return np.concatenate(chosen)


@dataclass(frozen=True)
class MomentGroups:
    """Merged groups.

    Attributes
    ----------
    table : pyarrow.Table
        The columns of the group's key (null where a name does not have it), ``step``, ``samples``, ``value``,
        the merged moments with their errors, ``error`` (how far rounding of raw sums may shift the value),
        ``scaled`` (whether an unknown loss scale may be in it) and, of gradients of parameters or unless the
        question is lean, ``gradient_stage`` (the weakest of its rows). Ordered by group, then step.
    keys : list of tuple
        Keys of the groups that stayed, in order.
    groups_total, steps_total : int
        How many there were before the largest groups were chosen and steps were left out.
    """

    table: pa.Table
    keys: list[Key]
    groups_total: int
    steps_total: int


@dataclass(frozen=True)
class _Side:
    """Names of one stat, with the key of each; a ratio has two sides."""

    stat: str
    names: list[str]
    pairs: list[str]
    keys: list[Key]


Reading = Callable[[Wanted, CellKeys, threading.Event], Iterator[Chunk]]
"""Gives the wanted rows in chunks of complete steps; rows of one cell may come merged already."""


def given_up() -> ClientError:
    return ClientError("The question was given up.", code="cancelled")


def until_stopped(chunks: Iterator[Chunk], stop: threading.Event) -> Iterator[Chunk]:
    """Yield chunks, of which the next ones, several small ones or one large, are read in a thread while the
    caller works; raises ClientError ``cancelled`` soon after ``stop`` was set.
    """
    with ThreadPoolExecutor(1, "megalens-moments") as thread:
        coming = deque[Future[Chunk | None]]()
        try:
            coming.append(thread.submit(next, chunks, None))
            while (chunk := _awaited(coming.popleft())) is not None:
                few = max(1, min(_AHEAD, _AHEAD_ROWS // max(1, len(chunk["step"]))))
                while len(coming) < few:
                    coming.append(thread.submit(next, chunks, None))
                if stop.is_set():
                    raise given_up()
                yield chunk
        except BaseException:
            # Whoever interrupts does not wait for what is read ahead.
            stop.set()
            raise


def _awaited(future: Future[Chunk | None]) -> Chunk | None:
    """Wait for a chunk, and wake up meanwhile: an interrupt that another thread got is raised only then."""
    while not wait((future,), _LOOK_SECONDS).done:
        pass
    return future.result()


def answer_groups(
    read: Reading,
    stats: Mapping[str, Listed],
    query: MomentQuery,
    stop: threading.Event,
) -> MomentGroups:
    """Merge rows, in chunks as ``read`` gives them, as ``query`` asks.

    Raises ``ClientError``: ``mixed`` when a group would have both inputs and outputs of modules;
    ``cancelled`` soon after ``stop`` was set.
    """
    sides = _sides(stats, query)
    order = sorted({key for side in sides for key in side.keys}, key=key_order)
    columns, totals = _Answer(read, stats, query, sides, order, stop).picked()
    return _shape(columns, totals, order, query)


class _Answer:
    def __init__(
        self,
        read: Reading,
        stats: Mapping[str, Listed],
        query: MomentQuery,
        sides: list[_Side],
        order: list[Key],
        stop: threading.Event,
    ) -> None:
        self._stop = stop
        self._read = read
        self._query = query
        self._first = None if query.shaped else query.first
        codes = {key: code for code, key in enumerate(order)}
        pairs: dict[str, int] = {}
        self._names: dict[str, list[str]] = {}
        for side in sides:
            self._names.setdefault(side.stat, []).extend(side.names)
        self._keys = CellKeys(
            np.array([codes[key] for side in sides for key in side.keys], np.int64),
            np.array(
                [pairs.setdefault(pair, len(pairs)) for side in sides for pair in side.pairs]
                if len(sides) == 2
                else [],
                np.int64,
            ),
            len(sides[0].names),
            query.grouping.rows,
        )
        known = [stats[stat].between(self._first, query.last) for stat in self._names if stat in stats]
        known = [steps for steps in known if len(steps)]
        self._steps = max((len(steps) for steps in known), default=0)
        self._ends = (
            max((steps[0] for steps in known), default=0),
            min((steps[-1] for steps in known), default=0),
        )
        self._groups = len(order)

    def picked(self) -> tuple[dict[str, NDArray[Any]], tuple[int, int]]:
        """Return the columns of the cells that stay, by group and step, and the totals of both."""
        parts, counts = self._parts()
        chosen, shown, totals = self._pick(Grouped.of(parts, counts))
        columns = chosen_columns(parts, chosen)
        if shown is not None:
            columns["value"], scale = shown
            columns["error"] = np.where(columns["error"] == 0, 0, columns["error"] * scale)
        return columns, totals

    def _parts(self) -> tuple[list[Part], NDArray[np.int64] | None]:
        """Return the merged cells, and how many each group had if some were left out already."""
        query = self._query
        if query.points is None or query.shaped or query.grouping.rows or self._steps <= query.points:
            return [read_part(cells, query) for cells in self._merged()], None
        # A second reading, only where groups begin or end at different steps, is cheaper than storing all
        # cells.
        thinner = Thinner(self._groups, int(self._ends[1]), query.points)
        block = int(stretch_steps(*self._ends, query.points))
        left_out = NotShown(block, self._keys.codes) if block >= BLOCKS[0] else None
        while True:
            parts = [thinner.thin(read_part(cells, query)) for cells in self._merged(left_out)]
            if left_out is not None and left_out.steps:
                thinner.count[: len(left_out.cells)] += left_out.cells
                parts.append(parts[0].without_cells(np.concatenate(left_out.steps)))
            if not thinner.needs_retry():
                return parts, thinner.count
            left_out = None

    def _pick(
        self, cells: Grouped
    ) -> tuple[NDArray[np.int64], tuple[Column, Column] | None, tuple[int, int]]:
        """Return the indices of what stays, how it is shown and the factor of its errors, and the totals."""
        query = self._query
        # Relative values and trailing means need earlier steps, so they precede the cut to the first shown
        # one.
        if not query.shaped:
            chosen = pick(cells, cells.value, query)
            return cells.index[chosen], None, cells.totals
        shown, scale = shape_values(cells.starts, cells.value, query.show, query.smoothing)
        if query.first is not None:
            inside = cells.step >= query.first
            cells, shown, scale = cells.since(query.first), shown[inside], scale[inside]
        chosen = pick(cells, shown, query)
        return cells.index[chosen], (shown[chosen], scale[chosen]), cells.totals

    def _merged(self, left_out: NotShown | None = None) -> Iterator[Cells]:
        query = self._query
        columns = (
            *wanted_columns(query.statistic if query.lean else None, self._names),
            *query.grouping.rows,
        )
        rows = query.where.rows
        wanted = Wanted(self._names, columns, rows, self._first, query.last, query.levels, left_out)
        chunks = until_stopped(self._read(wanted, self._keys, self._stop), self._stop)
        return merge_cells(chunks, self._keys, columns)


def _sides(stats: Mapping[str, Listed], query: MomentQuery) -> list[_Side]:
    if query.ratio == "grad_to_param":
        return [_side(stats, query, "grad", None), _side(stats, query, "param", None)]
    if query.ratio == "gain":
        roles = ("input", "output") if query.stat == "dgrad" else ("output", "input")
        return [_side(stats, query, query.stat, role) for role in roles]
    return [_side(stats, query, query.stat, None)]


def _side(stats: Mapping[str, Listed], query: MomentQuery, stat: str, role: str | None) -> _Side:
    """Code the names of one side by the query's columns; ``role`` restricts them and names their modules."""
    names = stats[stat].names if stat in stats else []
    merged = (name for level in query.levels for name in merged_names(names, level))
    names = list(dict.fromkeys([*names, *merged]))
    if role is not None:
        names = [name for name in names if parse_name(name).role == role]
    texts = names if role is None else [module_of(name) for name in names]
    taking = query.where.keep(texts, any_role=role is not None)
    keys = query.grouping.keys(texts)
    taken = [at for at, keep in enumerate(taking) if keep and keys[at] is not None]
    side = _Side(
        stat,
        [names[at] for at in taken],
        [texts[at] for at in taken],
        [keys[at] for at in taken],  # type: ignore[misc]
    )
    if role is None and stat in ("activation", "dgrad") and not query.mixed:
        _refuse_mixed(side)
    return side


def _refuse_mixed(side: _Side) -> None:
    roles: dict[Key, set[str]] = {}
    for name, key in zip(side.names, side.keys, strict=True):
        role = parse_name(name).role
        if role is not None:
            roles.setdefault(key, set()).add(role)
    for key, found in roles.items():
        if len(found) > 1:
            label = " · ".join("none" if value is None else str(value) for value in key)
            which = f"The group {label}" if key else "The total"
            raise ClientError(
                f"{which} would hold both inputs and outputs of modules, in which the same values count "
                "twice. "
                'Choose one with where={"role": "output"}, group by role, or allow it with mixed=True.',
                code="mixed",
                field="mixed",
            )


# The twin of ``src/aggregate/moment-tables.ts``.
def shape_values(
    starts: NDArray[np.int64], value: Column, show: str, smoothing: int
) -> tuple[Column, Column]:
    """Return the values as ``show`` says and the factor of their errors; a first value of 0 gives nothing.

    ``starts`` are the indices at which groups begin; values are ordered by group, then step. The trailing
    mean over ``smoothing`` steps (0 and 1: none) is over finite values; what is not finite stays as it is.
    """
    if not len(value):
        return value, value
    ends = np.append(starts[1:], len(value))
    shown, scale = value, np.ones(len(value))
    with np.errstate(all="ignore"):
        if show != "raw":
            first = np.repeat(_firsts(value, starts), ends - starts)
            if show == "delta":
                shown = value - first
            else:
                scale = np.where(first == 0, np.nan, 1 / first)
                shown = value * scale if show == "relative" else (value - first) * 100 * np.abs(scale)
                scale = np.abs(scale) * (100 if show == "percent" else 1)
        if smoothing > 1:
            raw, shown = shown, np.empty_like(shown)
            for begin, end in zip(starts, ends, strict=True):
                part = raw[begin:end]
                shown[begin:end] = np.where(np.isfinite(part), trailing_mean(part, smoothing), part)
    return shown, scale


def _firsts(values: Column, starts: NDArray[np.int64]) -> Column:
    """Return the first finite value of each group, NaN where there is none."""
    nowhere = len(values)
    indices = np.minimum.reduceat(np.where(np.isfinite(values), np.arange(nowhere), nowhere), starts)
    return np.append(values, np.nan)[indices]


def _shape(
    columns: dict[str, NDArray[Any]], totals: tuple[int, int], order: list[Key], query: MomentQuery
) -> MomentGroups:
    keys = ("code", *query.grouping.rows)
    codes = [columns[name] for name in keys]
    starts = _starts(codes)
    found = [
        query.grouping.with_row_values(
            order[codes[0][at]],
            {column: int(values[at]) for column, values in zip(keys[1:], codes[1:], strict=True)},
        )
        for at in starts
    ]
    # Numbers of ranks that are not known come first among cells and last in an answer.
    sorted_groups = sorted(range(len(found)), key=lambda index: key_order(found[index]))
    lengths = np.diff([*starts, len(columns["step"])])
    rows = (
        np.concatenate([np.arange(starts[index], starts[index] + lengths[index]) for index in sorted_groups])
        if sorted_groups
        else np.zeros(0, np.int64)
    )
    group = (
        np.repeat(np.arange(len(sorted_groups)), [lengths[index] for index in sorted_groups])
        if sorted_groups
        else rows
    )
    ordered = [found[index] for index in sorted_groups]
    table: dict[str, Any] = {
        label: _key_column(label, [key[at] for key in ordered], group)
        for at, label in enumerate(query.grouping.labels)
    }
    unknown = np.full(len(rows), np.nan)
    table |= {
        name: columns[name][rows] if name in columns else unknown
        for name in ("step", "samples", "value", *MERGED, "error", "scaled")
    }
    if STAGE in columns:
        table[STAGE] = pa.DictionaryArray.from_arrays(columns[STAGE][rows], list(STAGES))
    return MomentGroups(pa.table(table), ordered, *totals)


def _starts(codes: list[NDArray[Any]]) -> NDArray[np.int64]:
    if not len(codes[0]):
        return np.zeros(0, np.int64)
    changed = np.zeros(len(codes[0]), bool)
    changed[0] = True
    for column in codes:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _key_column(label: str, values: list[Any], group: NDArray[Any]) -> pa.Array:
    integers = all(
        isinstance(value, int) and not isinstance(value, bool) for value in values if value is not None
    )
    known = [value for value in values if value is not None]
    if integers and (known or label in _INTEGERS):
        column = pa.array(values, pa.int64())
    elif all(isinstance(value, str) for value in known):
        column = pa.array(values, pa.utf8())
    else:
        column = pa.array([None if value is None else str(value) for value in values], pa.utf8())
    return column.take(pa.array(group))


def trailing_mean(values: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """Return the mean of each value and those before it, ``points`` in all, over the finite ones; NaN where
    there is none.

    The sum starts afresh for each block of points: a running sum would keep the rounding of everything
    before.
    """
    if points < 2 or not len(values):
        return np.where(np.isfinite(values), values, np.nan)
    finite = np.isfinite(values)
    # Whole blocks, and one of nothing before the first point.
    behind = -len(values) % points
    sums, counts = (
        np.pad(column.astype(np.float64), (points, behind)).reshape(-1, points)
        for column in (np.where(finite, values, 0.0), finite)
    )
    total, count = (_windows(column)[: len(values)] for column in (sums, counts))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: NDArray[np.float64] = total / np.where(count > 0, count, np.nan)
    return mean


def _windows(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sliding sums of one block's length for all entries behind the first block.

    Each is the block's start up to the entry, plus the end of the previous block.
    """
    from_start = np.cumsum(blocks, axis=1)[1:]
    to_end = np.cumsum(blocks[:, ::-1], axis=1)[:-1, ::-1]
    from_start[:, :-1] += to_end[:, 1:]
    return from_start.ravel()
