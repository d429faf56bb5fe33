"""Which rows of a summary show all that a picture of many steps can show, see protocol/README.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..protocol import BLOCKS, MOMENT_READINGS, read_moments

Integers = NDArray[np.int64]


class _Extremes(NamedTuple):
    """Extremes of blocks, a column for each reading of a series, and the rows that have them first."""

    values: NDArray[np.float64]
    rows: Integers


_WAYS: tuple[Callable[..., Integers], ...] = (np.argmin, np.argmax)
_LEAST_STEPS = 32
"""Steps of a block on average. About 18 stay: the extremes of ten readings, and the ends."""
_LEAST_GAIN = 2
_CELLS = 65_536
"""Values of readings that are looked at together, in the processor's caches."""
# With a constant more, or a root of it, a reading has the same extremes.
_READINGS = tuple({*MOMENT_READINGS} - {"excess_kurtosis", "std", "nonfinite"})


def block_rows(rows: Mapping[str, NDArray[Any]], steps: Integers) -> dict[int, Integers]:
    """Return which rows stay for blocks of each number of steps that is worth it.

    Parameters
    ----------
    rows : mapping
        Columns of a summary, ordered by step.
    steps : ndarray
        The different steps, ascending.

    Returns
    -------
    dict
        By steps of a block the rows that stay, ascending: all of the first and the last step, whose other
        rows may be in the segments beside it; of all other steps and each series the first and the last row,
        those of each block, those that are the first to have the least or the greatest value of a reading
        there, and all with a value that is not finite or not known. Nothing where some series lacks a step.
    """
    inner = steps[1:-1]
    if len(inner) < _LEAST_STEPS:
        return {}
    between = (rows["step"] != steps[0]) & (rows["step"] != steps[-1])
    inside, edges = np.flatnonzero(between), np.flatnonzero(~between)
    if len(inside) % len(inner):
        return {}
    # Of each step a row of each series, side by side: mostly as they lie.
    at, codes = inside.reshape(len(inner), -1), series_codes(rows)
    them: slice | Integers = slice(inside[0], inside[-1] + 1)
    if (codes[at] != codes[at[0]]).any():
        them = at = inside[np.argsort(codes[inside], kind="stable")].reshape(at.shape[::-1]).T
    if (codes[at] != codes[at[0]]).any() or (rows["step"][at] != inner[:, None]).any():
        return {}
    readings, always = _readings(rows)
    # Of each reading of each series the extremes of blocks, among which are those of larger ones.
    known: list[_Extremes] = []
    bad, ids = inside[always[inside]], inner
    kept: dict[int, Integers] = {}
    before = len(rows["step"])
    for block in BLOCKS:
        blocks = inner // block
        begins = _begins(blocks)
        if len(inner) < _LEAST_STEPS * len(begins):
            continue
        within, ids = _alike(_begins(ids // block), len(ids)), blocks[begins] * block
        if known:
            known = [_extremes(way, *each, within) for way, each in zip(_WAYS, known, strict=True)]
        else:
            some = max(1, _CELLS // at.size)
            each = []
            for begin in range(0, len(readings), some):
                beside = [reading[them].reshape(at.shape) for reading in readings[begin : begin + some]]
                values, places = np.concatenate(beside, axis=1), np.tile(at, len(beside))
                each.append([_extremes(way, values, places, within) for way in _WAYS])
            known = [
                _Extremes(*(np.concatenate(part, axis=1) for part in zip(*of, strict=True)))
                for of in zip(*each, strict=True)
            ]
        ends = np.append(begins[1:], len(inner)) - 1
        found = np.zeros(len(rows["step"]), bool)
        for stay in (edges, bad, at[begins], at[ends], *(each.rows for each in known)):
            found[stay] = True
        if np.count_nonzero(found) * _LEAST_GAIN <= before:
            kept[block] = np.flatnonzero(found)
            before = len(kept[block])
        if len(begins) == 1:
            break
    return kept


def series_codes(rows: Mapping[str, NDArray[Any]]) -> Integers:
    """Return a number for each row, the same for rows of the same series."""
    code = np.zeros(len(rows["step"]), np.int64)
    for name in ("name", "gradient_stage", "stage"):
        column = rows[name].astype(np.int64)
        low = int(column.min(initial=0))
        code = code * (int(column.max(initial=0)) - low + 1) + column - low
    return code


def _readings(rows: Mapping[str, NDArray[Any]]) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
    """Return what a picture may show of each row, and which rows it always shows."""
    read = read_moments(rows)
    bad = rows["nan_count"] + rows["inf_count"]
    always = bad != 0
    for reading in read.values():
        always |= np.isinf(reading)
    # What is the same in all rows is as great in the first one of a block.
    shown = [read[name] for name in _READINGS] + [bad]
    return [reading for reading in shown if (reading != reading[:1]).any()], always


def _begins(block: Integers) -> Integers:
    return np.append(0, np.flatnonzero(np.diff(block)) + 1)


def _alike(begins: Integers, count: int) -> list[tuple[Integers, int]]:
    """Return begins of blocks that follow one another and are as long, and how long: mostly all but two."""
    ends = np.append(begins[1:], count)
    lengths = ends - begins
    turns = [*_begins(lengths).tolist(), len(begins)]
    return [(begins[first:past], int(lengths[first])) for first, past in pairwise(turns)]


def _extremes(
    way: Callable[..., Integers],
    values: NDArray[np.float64],
    rows: Integers,
    blocks: list[tuple[Integers, int]],
) -> _Extremes:
    """Return of each column and block the extreme of the finite values, and the row that has it first."""
    finite = values
    if not (known := np.isfinite(values)).all():
        finite = np.where(known, values, np.inf if way is np.argmin else -np.inf)
    first = np.concatenate(
        [
            way(finite[begins[0] : begins[-1] + size].reshape(len(begins), size, -1), axis=1)
            + begins[:, None]
            for begins, size in blocks
        ]
    )
    column = np.arange(values.shape[1])
    return _Extremes(values[first, column], rows[first, column])
