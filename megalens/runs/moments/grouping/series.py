"""Merged cells as an answer has them: read, thinned while rows are still coming, and ordered by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....protocol import BLOCKS, MOMENT_COLUMNS
from ..rows.pieces import STAGE, different
from .cells import Cells, reading_error, reading_value
from .query import MomentQuery

Column = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

MERGED = (*MOMENT_COLUMNS, "m2_error", "m4_error")
"""Columns of merged moments."""
_COUNTS = ("count", "nan_count", "inf_count")
# Up to so many times as many codes as cells are counted in a table.
_SPARSE = 4
_BLOCK_BYTES = 8 * 1024 * 1024
_ALIGNED = 64


class Arena:
    """Packs copies of small arrays into large blocks.

    In gaps between large freed arrays they would fragment the heap: the next large arrays then take a hundred
    megabytes more of memory, which the system has to clear first.
    """

    def __init__(self) -> None:
        self._block = np.empty(0, np.uint8)
        self._used = 0

    def keep(self, array: NDArray[Any]) -> NDArray[Any]:
        wanted = -(-array.nbytes // _ALIGNED) * _ALIGNED
        if self._used + wanted > len(self._block):
            self._block, self._used = np.empty(max(_BLOCK_BYTES, wanted), np.uint8), 0
        copy = self._block[self._used : self._used + array.nbytes].view(array.dtype)
        copy[:] = array
        self._used += wanted
        return copy


@dataclass(frozen=True)
class Part:
    """Cells that were merged together: complete steps, in their order.

    Attributes
    ----------
    keys : mapping
        ``code`` of the group, then what rows have of it (``rank``, ``stage``); -1 is not known.
    value : ndarray
        The statistic, or the ratio.
    bad : ndarray
        Whether the cell has anything that is not finite or not known.
    more : mapping
        Further columns: ``samples``, ``error``, ``scaled``, the stage of gradients (of a ratio those of the
        dividend) and moments; of a lean answer only counts.
    steps : ndarray
        The different steps, ascending; also those of which cells were left out.
    across : int
        As in :class:`Cells`.
    """

    keys: Mapping[str, Integers]
    step: Integers
    value: Column
    bad: NDArray[np.bool_]
    more: Mapping[str, NDArray[Any]]
    steps: Integers
    across: int = 0

    def take(self, indices: Integers, arena: Arena) -> Part:
        """Return the cells at some indices, in their order, stored in an arena."""

        def taken(column: NDArray[Any]) -> NDArray[Any]:
            return arena.keep(column[indices])

        return Part(
            {name: taken(key) for name, key in self.keys.items()},
            taken(self.step),
            taken(self.value),
            taken(self.bad),
            {name: taken(column) for name, column in self.more.items()},
            arena.keep(self.steps),
        )

    def without_cells(self, steps: Integers) -> Part:
        """Return a part like this, of which all cells at these steps were left out."""
        return replace(self.take(np.zeros(0, np.int64), Arena()), steps=steps)


def read_part(cells: Cells, query: MomentQuery) -> Part:
    """Return the statistics of merged cells that a query asks for."""
    keys = dict(zip(("code", *query.grouping.rows), cells.keys, strict=True))
    merged, *below = cells.sides
    value = reading_value(merged, query.statistic)
    bad = merged["nan_count"] + merged["inf_count"]
    over = value
    for side in below:
        bad = bad + side["nan_count"] + side["inf_count"]
        divisor = reading_value(side, query.statistic)
        with np.errstate(all="ignore"):
            over = value / divisor
    error, scaled = reading_error(merged, query.statistic), merged["scaled"]
    names = _COUNTS if query.lean else MERGED
    more = {name: merged[name] for name in names if name in merged}
    for side in below:
        shares = _share(error, value) + _share(reading_error(side, query.statistic), divisor)
        with np.errstate(all="ignore"):
            error = np.where(shares > 0, np.abs(over) * shares, 0)
        scaled = scaled | side["scaled"]
        more |= {name: merged[name] + side[name] for name in ("nan_count", "inf_count")}
    more |= {"samples": merged["samples"], "error": error, "scaled": scaled}
    if STAGE in merged:
        more[STAGE] = merged[STAGE]
    steps = (
        cells.step[:: cells.across]
        if cells.across
        else cells.step[np.diff(cells.step, prepend=cells.step[:1] - 1) != 0]
    )
    return Part(keys, cells.step, over, bad != 0, more, steps, cells.across)


def chosen_columns(parts: Sequence[Part], indices: Integers) -> dict[str, NDArray[Any]]:
    """Return the columns of cells by indices that count through all parts (at least one)."""
    order = np.argsort(indices, kind="stable")
    starts = np.concatenate([[0], np.cumsum([len(part.step) for part in parts])])
    bounds = np.searchsorted(indices[order], starts)
    rows = [(to := order[bounds[at] : bounds[at + 1]], indices[to] - starts[at]) for at in range(len(parts))]

    def gather(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
        # Nothing is joined before it is chosen: of millions of cells a picture takes thousands.
        found = np.empty(len(indices), columns[0].dtype)
        for (to, of), column in zip(rows, columns, strict=True):
            found[to] = column[of]
        return found

    first = parts[0]
    return {
        **{name: gather([part.keys[name] for part in parts]) for name in first.keys},
        "step": gather([part.step for part in parts]),
        "value": gather([part.value for part in parts]),
        **{name: gather([part.more[name] for part in parts]) for name in first.more},
    }


def _share(error: Column, value: Column) -> Column:
    with np.errstate(all="ignore"):
        return np.where(error == 0, 0, error / np.abs(value))


@dataclass(frozen=True)
class Grouped:
    """The cells of all parts, ordered by group, then step.

    Attributes
    ----------
    starts, counts : ndarray
        Where each group with a cell begins, and how many cells it had before some were left out.
    index, step, value, bad : ndarray
        Each cell's index among those of all parts, and its columns of :class:`Part`.
    steps : ndarray
        The different steps, ascending.
    """

    starts: Integers
    counts: Integers
    index: Integers
    step: Integers
    value: Column
    bad: NDArray[np.bool_]
    steps: Integers

    @property
    def totals(self) -> tuple[int, int]:
        """How many groups and different steps there are."""
        return len(self.starts), len(self.steps)

    @staticmethod
    def of(parts: Sequence[Part], counts: Integers | None = None) -> Grouped:
        """Order the cells of consecutive parts; ``counts`` is how many each code had before some were left
        out.

        Each part is sorted by itself, while it is in the processor's caches, and its groups are then appended
        to those of the parts before: sorting ten million cells at once, and reading the columns in that
        order, takes five times as long.
        """
        codes, size = _codes(parts)
        totals = np.zeros(size, np.int64)
        for code in codes:
            totals += np.bincount(code, minlength=size)
        ends = np.cumsum(totals)
        free = ends - totals
        cells = int(ends[-1]) if size else 0
        index, step, value, bad = (np.empty(cells, kind) for kind in (np.int64, np.int64, np.float64, bool))
        done = 0
        for part, code in zip(parts, codes, strict=True):
            count = len(code)
            order = np.argsort(code, kind="stable")
            sorted_code = code[order]
            begins = np.flatnonzero(np.diff(sorted_code, prepend=sorted_code[:1] + 1))
            groups, lengths = sorted_code[begins], np.diff(begins, append=count)
            to = np.repeat(free[groups] - begins, lengths) + np.arange(count)
            free[groups] += lengths
            index[to] = order + done
            step[to], value[to], bad[to] = part.step[order], part.value[order], part.bad[order]
            done += count
        there = totals > 0
        steps = np.concatenate([part.steps for part in parts])
        return Grouped(
            (ends - totals)[there],
            totals[there] if counts is None else counts[counts > 0],
            index,
            step,
            value,
            bad,
            different(steps),
        )

    def since(self, first: int) -> Grouped:
        inside = self.step >= first
        if inside.all():
            return self
        totals = np.add.reduceat(inside, self.starts, dtype=np.int64)
        ends = np.cumsum(totals)
        return Grouped(
            (ends - totals)[totals > 0],
            totals[totals > 0],
            self.index[inside],
            self.step[inside],
            self.value[inside],
            self.bad[inside],
            self.steps[self.steps >= first],
        )


def _codes(parts: Sequence[Part]) -> tuple[list[NDArray[Any]], int]:
    """Return the group number of each cell, and a bound of these numbers."""
    codes = [part.keys["code"] for part in parts]
    size = 1 + max((int(code.max(initial=-1)) for code in codes), default=-1)
    for name in list(parts[0].keys)[1:]:
        more = 2 + max(int(part.keys[name].max(initial=-1)) for part in parts)
        codes = [code * more + (part.keys[name] + 1) for code, part in zip(codes, parts, strict=True)]
        size *= more
    if size > _SPARSE * sum(len(code) for code in codes) + 1024:
        known = np.unique(np.concatenate(codes))
        codes, size = [np.searchsorted(known, code) for code in codes], len(known)
    # numpy sorts short numbers by counting them.
    return ([code.astype(np.uint16) for code in codes] if size <= 1 << 16 else codes), size


# Parts are thinned while rows are read, so that memory has only what a picture may show.
class Thinner:
    """Thins parts that arrive in the order of their steps.

    The stretches of a group depend on its first and last step, which are known only after the last part. The
    first pass therefore assumes that all groups begin together and end at ``last``. :meth:`needs_retry`
    checks this afterwards and asks for a second pass if it was wrong. Of each of ``points`` / 4 stretches of
    a group the ends and extremes stay.
    """

    def __init__(self, groups: int, last: int, points: int) -> None:
        self._points = points
        self._first: int | None = None
        self._last = last
        self._known: _Spans | None = None
        self._seen = _Spans.none(groups)
        self._arena = Arena()

    @property
    def count(self) -> Integers:
        """Number of cells of each group so far."""
        return self._seen.count

    def needs_retry(self) -> bool:
        """Whether the assumed first and last steps were wrong: all parts then have to come twice."""
        seen = self._seen
        there = seen.count > 0
        if self._known is not None or (
            (seen.first[there] == self._first).all()
            and (seen.last[there] == self._last).all()
            and (seen.count[there] > self._points).all()
        ):
            return False
        self._known, self._seen, self._arena = seen, _Spans.none(len(there)), Arena()
        return True

    def thin(self, part: Part) -> Part:
        """Return the cells of a part that stay, in their order."""
        if not len(part.step):
            return part
        if self._first is None:
            self._first = int(part.step[0])
        if part.across and self._known is None:
            return self._thin_grid(part, self._first)
        code = part.keys["code"]
        # numpy sorts short numbers by counting them.
        order = np.argsort(code.astype(np.uint16) if len(self.count) <= 1 << 16 else code, kind="stable")
        # The cells of a group are now adjacent, in step order. A run is a group's part of one stretch.
        code, step = code[order], part.step[order]
        changes = np.diff(code, prepend=-1) != 0
        begins = np.flatnonzero(changes)
        ends = np.append(begins[1:], len(step))
        self._seen.note(code[begins], step[begins], step[ends - 1], ends - begins)
        known = self._known
        first, last = (self._first, self._last) if known is None else (known.first[code], known.last[code])
        stretch = stretches(step, first, last, self._points)
        changes[1:] |= stretch[1:] != stretch[:-1]
        keep = keep_extremes(np.flatnonzero(changes), part.value[order], part.bad[order])
        # A part may end within a stretch: two runs then keep a few more cells, which `pick` thins at the end.
        if known is not None:
            # Groups with few cells are not thinned.
            keep |= known.count[code] <= self._points
        return part.take(np.sort(order[keep]), self._arena)

    def _thin_grid(self, part: Part, first: int) -> Part:
        """Thin a part with the same groups at every step: no sorting, and equal stretches."""
        steps, across = len(part.steps), part.across
        self._seen.note(part.keys["code"][:across], part.steps[0], part.steps[-1], steps)
        runs = np.flatnonzero(np.diff(stretches(part.steps, first, self._last, self._points), prepend=-1))
        keep = keep_extremes(runs, part.value.reshape(steps, across), part.bad.reshape(steps, across))
        return part.take(np.flatnonzero(keep), self._arena)


@dataclass(frozen=True)
class _Spans:
    """First and last step, and the number of cells, by group code; without cells only the number is valid."""

    first: Integers
    last: Integers
    count: Integers

    @staticmethod
    def none(groups: int) -> _Spans:
        return _Spans(*np.zeros((3, groups), np.int64))

    def note(self, groups: Integers, first: Any, last: Any, count: Any) -> None:
        """Count cells of groups, all behind the earlier ones, with their first and last step."""
        self.first[groups] = np.where(self.count[groups] == 0, first, self.first[groups])
        self.last[groups] = last
        self.count[groups] += count


def stretches(step: Integers, first: Any, last: Any, points: int, *, blocks: bool = True) -> Integers:
    """Return in which of about ``points`` / 4 equal stretches of its group's steps each step lies, from 0.

    With ``blocks`` long ones are whole blocks of a summary.
    """
    steps = stretch_steps(first, last, points) if blocks else _even(first, last, points)
    whole = blocks & (steps >= BLOCKS[0])
    found: Integers = ((step - np.where(whole, first // steps * steps, first)) / steps).astype(np.int64)
    return np.where(whole, found, found.clip(max=max(1, points // 4) - 1))


def stretch_steps(first: Any, last: Any, points: int) -> Any:
    """Return how many steps such a stretch has; many become the next power of two, and stretches then begin
    at its multiples, so that they are whole blocks of a summary.
    """
    steps = _even(first, last, points)
    return np.where(steps < BLOCKS[0], steps, 2.0 ** np.ceil(np.log2(steps)))


def _even(first: Any, last: Any, points: int) -> Any:
    return np.maximum(1, last - first) / max(1, points // 4)


def keep_extremes(starts: Integers, shown: Column, bad: Flags) -> Flags:
    """Return which cells of each run stay: the first, last, least and greatest, and all that are ``bad``.

    ``starts`` are the indices at which runs begin. ``shown`` and ``bad`` are ``[cells]``, or ``[steps,
    groups]`` where the runs of all groups begin at the same steps; the result has their shape.
    """
    lengths = np.diff(starts, append=len(shown))
    across = shown[0].size if len(shown) else 1
    finite = np.isfinite(shown)
    all_finite = bool(finite.all())
    keep = bad.copy() if all_finite else bad | np.isinf(shown)
    keep[starts] = keep[starts + lengths - 1] = True
    for choose, farthest in ((np.minimum, np.inf), (np.maximum, -np.inf)):
        compared = shown if all_finite else np.where(finite, shown, farthest)
        found = np.flatnonzero(compared == np.repeat(choose.reduceat(compared, starts), lengths, axis=0))
        run = np.searchsorted(starts, found // across, side="right")
        # Of equal extremes only the first stays.
        _, once = np.unique(run * across + found % across, return_index=True)
        keep.flat[found[once]] = True
    return keep
