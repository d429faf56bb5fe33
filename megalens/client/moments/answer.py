"""From a question to merged groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol import StatIndex, parse_name
from ..errors import ClientError
from .cells import CellKeys, Cells, merge_cells, wanted_columns
from .grouping import Key, key_order
from .name_table import module_of
from .pick import pick
from .query import MomentQuery
from .readings import reading_error, reading_value
from .rows import MomentRows
from .shaping import shape_values
from .wanted import Wanted, read_ahead

__all__ = ["MERGED", "MomentGroups", "answer_groups"]

MERGED = ("count", "mean", "m2", "m3", "m4", "min", "max", "nan_count", "inf_count", "m2_error", "m4_error")
"""Columns of merged moments."""

# So many cells are held as they are merged, with all of their columns; of more first only the values, which tell what a picture needs of them.
_HELD_CELLS = 4_000_000
_WHOLE = ("layer", "expert", "rank", "stage")
_EVER = -(1 << 63)

Column = NDArray[np.float64]


@dataclass(frozen=True)
class MomentGroups:
    """Merged groups.

    Attributes
    ----------
    table : pyarrow.Table
        The columns of the group's key (null where a name does not have it), ``step``, ``samples``, ``value``, the merged moments with their errors, ``error`` (how far the value
        may be off by the rounding of raw sums, in its own unit) and ``scaled`` (whether a loss scale that is not known may be in it). Ordered by group, then step.
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
    """What is grouped: names of one stat, with the key of each; of a ratio there are two."""

    stat: str
    names: list[str]
    pairs: list[str]
    keys: list[Key]


def answer_groups(
    connection: Any, rows: MomentRows, stats: Mapping[str, StatIndex], query: MomentQuery
) -> MomentGroups:
    """Merge rows as ``query`` asks.

    Raises
    ------
    ClientError
        ``mixed`` when a group would hold both inputs and outputs of modules.
    """
    sides = _sides(stats, query)
    order = sorted({key for side in sides for key in side.keys}, key=key_order)
    return _shape(_Answer(connection, rows, stats, query, sides, order).picked(), order, query)


@dataclass(frozen=True)
class _Picked:
    """Cells that stay, ordered by group and step; their values as shown, with the factors of their errors, where that is not as they are; how many groups and steps there were."""

    cells: Cells
    shaped: tuple[Column, Column] | None
    totals: tuple[int, int]


@dataclass(frozen=True)
class _Slim:
    """Of cells what groups and steps are chosen by."""

    keys: list[NDArray[np.int64]]
    step: NDArray[np.int64]
    value: Column
    bad: NDArray[np.bool_]
    """Whether there is anything in it that is not finite or not known."""

    @classmethod
    def of(cls, cells: Cells, query: MomentQuery) -> _Slim:
        values = [reading_value(side, query.statistic) for side in cells.sides]
        bad = np.logical_or.reduce([(side["nan_count"] + side["inf_count"]) != 0 for side in cells.sides])
        with np.errstate(all="ignore"):
            value = values[0] if len(values) == 1 else values[0] / values[1]
        return cls(cells.keys, cells.step, value, bad)


class _Answer:
    """From rows to the cells that stay."""

    def __init__(
        self,
        connection: Any,
        rows: MomentRows,
        stats: Mapping[str, StatIndex],
        query: MomentQuery,
        sides: list[_Side],
        order: list[Key],
    ) -> None:
        self._connection = connection
        self._rows = rows
        self._query = query
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
        known = [stats[stat] for stat in self._names if stat in stats]
        self._cells = min(
            sum(one.rows for one in known), len(order) * max((one.steps for one in known), default=0)
        )

    def picked(self) -> _Picked:
        """Return the cells that stay."""
        query = self._query
        statistic = query.statistic if query.lean else None
        picking = query.series is not None or query.points is not None
        if not picking or self._cells <= _HELD_CELLS:
            parts = list(self._merged(statistic))
            kept, shaped, totals = self._pick([_Slim.of(part, query) for part in parts])
            return _Picked(Cells.chosen(parts, kept), shaped, totals)
        # Of so many only what is picked by is held; those that stay are merged again.
        slim = [_Slim.of(part, query) for part in self._merged(query.statistic)]
        kept, shaped, totals = self._pick(slim)
        chosen = np.zeros(sum(len(part.step) for part in slim), bool)
        chosen[kept] = True
        parts = list(self._merged(statistic, chosen))
        # Of the chosen cells, which come in the order of all, these are the places.
        return _Picked(Cells.chosen(parts, np.cumsum(chosen)[kept] - 1), shaped, totals)

    def _pick(
        self, parts: Sequence[_Slim]
    ) -> tuple[NDArray[np.int64], tuple[Column, Column] | None, tuple[int, int]]:
        """Return the places of what stays, ordered by group and step; how it is shown, where that is not as it is; and how many groups and steps there were."""
        query = self._query
        keys = [np.concatenate(key) for key in zip(*(part.keys for part in parts), strict=True)]
        step, value = (np.concatenate([getattr(part, name) for part in parts]) for name in ("step", "value"))
        bad = np.concatenate([part.bad for part in parts])
        if not query.shaped:
            kept, totals = pick(keys, step, value, value, bad, query)
            return kept, None, totals
        shown, scale = shape_values(keys, step, value, query.show, query.smoothing)
        inside = np.flatnonzero(step >= (_EVER if query.first is None else query.first))
        columns = ([key[inside] for key in keys], step[inside], value[inside], shown[inside], bad[inside])
        kept, totals = pick(*columns, query)
        kept = inside[kept]
        return kept, (shown[kept], scale[kept]), totals

    def _merged(self, statistic: str | None, kept: NDArray[np.bool_] | None = None) -> Iterator[Cells]:
        query = self._query
        columns = (*wanted_columns(statistic), *query.grouping.rows)
        first = None if query.shaped else query.first
        wanted = Wanted(self._names, columns, query.where.rows, first, query.last)
        chunks = read_ahead(self._rows.chunks(self._connection, wanted))
        return merge_cells(chunks, self._keys, columns, kept)


def _sides(stats: Mapping[str, StatIndex], query: MomentQuery) -> list[_Side]:
    if query.ratio == "grad_to_param":
        return [_side(stats, query, "grad", None), _side(stats, query, "param", None)]
    if query.ratio == "gain":
        roles = ("input", "output") if query.stat == "dgrad" else ("output", "input")
        return [_side(stats, query, query.stat, role) for role in roles]
    return [_side(stats, query, query.stat, None)]


def _side(stats: Mapping[str, StatIndex], query: MomentQuery, stat: str, role: str | None) -> _Side:
    """Code the names of one side by the columns of the query. ``role``: take names of this role only, and modules' names for theirs."""
    names = stats[stat].names if stat in stats else []
    if role is not None:
        names = [name for name in names if parse_name(name).role == role]
    texts = names if role is None else [module_of(name) for name in names]
    kept = query.where.keep(texts, any_role=role is not None)
    keys = query.grouping.keys(texts)
    taken = [at for at, keep in enumerate(kept) if keep and keys[at] is not None]
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
            said = " · ".join("none" if value is None else str(value) for value in key)
            which = f"The group {said}" if key else "The total"
            raise ClientError(
                f"{which} would hold both inputs and outputs of modules, in which the same values count twice. "
                'Choose one with where={"role": "output"}, group by role, or allow it with mixed=True.',
                code="mixed",
                field="mixed",
            )


def _shape(picked: _Picked, order: list[Key], query: MomentQuery) -> MomentGroups:
    cells = picked.cells
    merged = cells.sides[0]
    value, error, scaled = (
        reading_value(merged, query.statistic),
        reading_error(merged, query.statistic),
        merged["scaled"],
    )
    if len(cells.sides) == 2:
        other = cells.sides[1]
        below = reading_value(other, query.statistic)
        with np.errstate(all="ignore"):
            shares = _share(error, value) + _share(reading_error(other, query.statistic), below)
            value = value / below
            error = np.where(shares > 0, np.abs(value) * shares, 0)
        scaled = scaled | other["scaled"]
        merged = merged | {name: merged[name] + other[name] for name in ("nan_count", "inf_count")}
    if picked.shaped is not None:
        value, scale = picked.shaped
        error = np.where(error == 0, 0, error * scale)
    codes = cells.keys
    keys = ("code", *query.grouping.rows)
    starts = _starts(codes)
    found = [
        query.grouping.with_row_values(
            order[codes[0][at]],
            {column: int(values[at]) for column, values in zip(keys[1:], codes[1:], strict=True)},
        )
        for at in starts
    ]
    # Numbers of ranks that are not known come first among cells and last in an answer.
    places = sorted(range(len(found)), key=lambda place: key_order(found[place]))
    lengths = np.diff([*starts, len(cells)])
    rows = (
        np.concatenate([np.arange(starts[place], starts[place] + lengths[place]) for place in places])
        if places
        else np.zeros(0, np.int64)
    )
    group = np.repeat(np.arange(len(places)), [lengths[place] for place in places]) if places else rows
    ordered = [found[place] for place in places]
    columns: dict[str, Any] = {
        label: _key_column(label, [key[at] for key in ordered], group)
        for at, label in enumerate(query.grouping.labels)
    }
    columns |= {"step": cells.step[rows], "samples": merged["samples"][rows], "value": value[rows]}
    unknown = np.full(len(rows), np.nan)
    columns |= {name: merged[name][rows] if name in merged else unknown for name in MERGED}
    columns |= {"error": error[rows], "scaled": scaled[rows]}
    return MomentGroups(pa.table(columns), ordered, *picked.totals)


def _share(error: NDArray[np.float64], value: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(error == 0, 0, error / np.abs(value))


def _starts(codes: list[NDArray[Any]]) -> NDArray[np.int64]:
    if not len(codes[0]):
        return np.zeros(0, np.int64)
    changed = np.zeros(len(codes[0]), bool)
    changed[0] = True
    for column in codes:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _key_column(label: str, values: list[Any], group: NDArray[Any]) -> pa.Array:
    whole = all(
        isinstance(value, int) and not isinstance(value, bool) for value in values if value is not None
    )
    known = [value for value in values if value is not None]
    if whole and (known or label in _WHOLE):
        column = pa.array(values, pa.int64())
    elif all(isinstance(value, str) for value in known):
        column = pa.array(values, pa.utf8())
    else:
        column = pa.array([None if value is None else str(value) for value in values], pa.utf8())
    return column.take(pa.array(group))
