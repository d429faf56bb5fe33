"""Which rows of a summary show all that a picture of many steps can show, see protocol/README.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import BLOCKS, MOMENT_READINGS, read_moments

Integers = NDArray[np.int64]

_Way = Callable[..., Integers]
_Known = tuple[_Way, NDArray[np.float64], Integers]

_LEAST_STEPS = 32
"""Steps of a block on average. About 18 stay: the extremes of ten readings, and the ends."""
_LEAST_GAIN = 2
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
    inside = np.flatnonzero((rows["step"] != steps[0]) & (rows["step"] != steps[-1]))
    edges = np.flatnonzero((rows["step"] == steps[0]) | (rows["step"] == steps[-1]))
    codes = series_codes(rows)[inside]
    order = np.argsort(codes, kind="stable")
    if len(order) % len(inner):
        return {}
    at, series = inside[order].reshape(-1, len(inner)), codes[order].reshape(-1, len(inner))
    if (rows["step"][at] != inner).any() or (series != series[:, :1]).any():
        return {}
    readings, always = _readings(rows)
    readings = [reading[at] for reading in readings]
    # Of each reading and direction the values of blocks, among which are those of larger ones.
    known: list[_Known] = [(way, values, at) for values in readings for way in (np.argmin, np.argmax)]
    bad, ids = inside[always[inside]], inner
    kept: dict[int, Integers] = {}
    before = len(rows["step"])
    for block in BLOCKS:
        blocks = inner // block
        begins = np.flatnonzero(np.diff(blocks, prepend=-1))
        if len(inner) < _LEAST_STEPS * len(begins):
            continue
        known, ids = [_extreme(*each, ids // block) for each in known], blocks[begins] * block
        ends = np.append(begins[1:], len(inner)) - 1
        stay = [
            edges,
            bad,
            at[:, begins].ravel(),
            at[:, ends].ravel(),
            *(place.ravel() for *_, place in known),
        ]
        found = np.zeros(len(rows["step"]), bool)
        found[np.concatenate(stay)] = True
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


def _extreme(way: _Way, values: NDArray[np.float64], at: Integers, block: Integers) -> _Known:
    """Return of each series and block the extreme of the finite values, and the row that has it first."""
    begins = np.flatnonzero(np.diff(block, prepend=-1))
    lengths = np.diff(begins, append=len(block))
    place = np.repeat(begins, lengths)
    # Blocks side by side; behind what a shorter one has comes its first value again.
    longest = int(lengths.max())
    if len(block) == len(begins) * longest:
        beside = values.reshape(len(values), len(begins), longest)
    else:
        beside = np.repeat(values[:, begins, None], longest, axis=2)
        row = np.arange(len(block)) - place
        beside.reshape(len(values), -1)[:, np.repeat(np.arange(len(begins)), lengths) * longest + row] = (
            values
        )
    if not np.isfinite(beside).all():
        beside = np.where(np.isfinite(beside), beside, np.inf if way is np.argmin else -np.inf)
    first = begins + way(beside, axis=2)
    return way, np.take_along_axis(values, first, axis=1), np.take_along_axis(at, first, axis=1)
