"""Rows merged into cells, each one group at one step, and what is read of merged moments."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....protocol import (
    MOMENT_COLUMNS,
    distinct,
    merge_moments,
    near_zero_share,
    read_moments,
    single_moments,
)
from ..rows.pieces import STAGE, Chunk

Column = NDArray[np.float64]
Integers = NDArray[np.int64]

_ALWAYS = ("samples", "nan_count", "inf_count", "rounding", "loss_scale")
# Rows merged at once: intermediate results of more leave the caches, at three times the cost a row.
_PIECE_ROWS = 100_000
# glibc returns large freed blocks to the system, which clears new ones for every piece: half of the time.
_SEEN_NUMBERS = 3_000_000
_INTEGERS = ("samples", "rank", "stage")

_POWERS = {"skewness": 3, "kurtosis": 4, "excess_kurtosis": 4}


@dataclass(frozen=True)
class CellKeys:
    """What identifies the cell of a row.

    Attributes
    ----------
    codes : ndarray
        Code of the group by the name's index.
    pairs : ndarray
        What a name has in common with its counterpart of a ratio, by its index; empty where nothing is
        divided.
    below : int
        The first index of the names that are divided by.
    rows : tuple of str
        Columns of the group's key that rows have: ``rank``, ``stage``.
    """

    codes: Integers
    pairs: Integers
    below: int
    rows: tuple[str, ...]


@dataclass
class Cells:
    """Merged cells, in the order of their steps; each once.

    Attributes
    ----------
    keys : list of ndarray
        The code of the group, then :attr:`CellKeys.rows`; -1 is not known.
    sides : list of dict
        The merged columns, ``samples``, ``scaled`` (whether an unknown loss scale may be in them) and, where
        it is wanted, the gradients' stage; of a ratio also those that are divided by.
    across : int
        The number of groups where every step has the same: the cells are a grid of steps × groups. Otherwise
        0.
    """

    keys: list[Integers]
    step: Integers
    sides: list[dict[str, NDArray[Any]]]
    across: int = 0


def wanted_columns(statistic: str | None, stats: Collection[str] = ()) -> tuple[str, ...]:
    """Return the columns of rows that a statistic of ``stats`` is merged from, or all."""
    more = (STAGE,) if statistic is None or "grad" in stats else ()
    return tuple(dict.fromkeys((*moment_columns(statistic), *_ALWAYS, *more)))


def merge_cells(chunks: Iterator[Chunk], keys: CellKeys, columns: Sequence[str]) -> Iterator[Cells]:
    """Merge the rows of each chunk; yields empty cells once where there are no rows at all."""
    given = 0
    np.empty(_SEEN_NUMBERS)
    for piece in (piece for chunk in chunks for piece in _pieces(chunk)):
        given += 1
        yield _grid(piece, keys) or _Numbered(piece, keys).merged()
    if not given:
        none = {
            name: np.zeros(0, np.int8 if name == STAGE else np.int64 if name in _INTEGERS else np.float64)
            for name in columns
        }
        nowhere = np.zeros(0, np.int64)
        yield _Numbered({**none, "name_index": nowhere, "step": nowhere}, keys).merged()


def _pieces(chunk: Chunk) -> Iterator[Chunk]:
    """Cut a chunk between steps."""
    step = chunk["step"]
    if len(step) <= _PIECE_ROWS:
        yield chunk
        return
    begin = 0
    while begin < len(step):
        end = int(np.searchsorted(step, step[min(begin + _PIECE_ROWS, len(step)) - 1], side="right"))
        yield {name: column[begin:end] for name, column in chunk.items()}
        begin = end


def _grid(chunk: Chunk, keys: CellKeys) -> Cells | None:
    """Return the cells of rows of which every step has the same names in the same order, as nearly all have;
    else None.

    Their group numbers are then those of the first step, repeated.
    """
    step, index = chunk["step"], chunk["name_index"]
    names = int(np.searchsorted(step, step[0], side="right")) if len(step) else 0
    if keys.rows or len(keys.pairs) or names < 1 or len(step) % names:
        return None
    steps, indices = step.reshape(-1, names), index.reshape(-1, names)
    if (
        (steps[1:, 0] <= steps[:-1, 0]).any()
        or (steps != steps[:, :1]).any()
        or (indices != indices[0]).any()
    ):
        return None
    code = keys.codes[indices[0]]
    codes, number = distinct(code, 0, int(code.max()) + 1)
    across = len(codes)
    if across == names:
        # Each is alone in its group: nothing is summed, and the order within a step does not matter.
        codes, merged = code, _single(chunk)
    else:
        numbers = (np.arange(len(steps))[:, None] * across + number).ravel()
        merged = _merge(chunk, numbers, len(steps) * across)
    return Cells([np.tile(codes, len(steps))], np.repeat(steps[:, 0], across), [merged], across)


class _Numbered:
    """The rows of one chunk, with the number of each row's cell."""

    def __init__(self, chunk: Chunk, keys: CellKeys) -> None:
        index = chunk["name_index"]
        step = chunk["step"]
        low = int(step.min()) if len(step) else 0
        self._steps, step = distinct(step, low, int(step.max(initial=low)) - low + 1)
        if len(keys.pairs):
            both = _in_both(keys.pairs[index] * len(self._steps) + step, index >= keys.below)
            chunk = {name: column[both] for name, column in chunk.items()}
            index, step = index[both], step[both]
        self._sizes = [len(self._steps), int(keys.codes.max(initial=-1)) + 1]
        cell = step * self._sizes[1] + keys.codes[index]
        for name in keys.rows:
            shifted = np.maximum(chunk[name].astype(np.int64), -1) + 1
            self._sizes.append(int(shifted.max(initial=0)) + 1)
            cell = cell * self._sizes[-1] + shifted
        self._columns = {
            name: column for name, column in chunk.items() if name not in ("name_index", "step", *keys.rows)
        }
        self._below = index >= keys.below if len(keys.pairs) else None
        size = int(np.prod(self._sizes, dtype=np.float64).clip(max=1 << 62))
        self._found, self._number = distinct(cell, 0, size)
        if self._below is not None:
            self._found, self._number = self._common()

    def merged(self) -> Cells:
        found, number = self._found, self._number
        columns, below = self._columns, self._below
        keep = number >= 0
        if not keep.all():
            number = number[keep]
            columns = {name: column[keep] for name, column in columns.items()}
            below = below[keep] if below is not None else None
        halves = [slice(None)] if below is None else [~below, below]
        step, *keys = np.unravel_index(found, self._sizes)
        return Cells(
            [keys[0], *(key - 1 for key in keys[1:])],
            self._steps[step],
            [
                _merge({name: column[half] for name, column in columns.items()}, number[half], len(found))
                for half in halves
            ],
        )

    def _common(self) -> tuple[Integers, Integers]:
        """Return the cells with rows of both sides, and each row's number among them; -1 for other rows."""
        there = np.zeros((2, len(self._found)), bool)
        there[self._below.astype(int), self._number] = True  # type: ignore[union-attr]
        both = there.all(axis=0)
        return self._found[both], np.where(both, np.cumsum(both) - 1, -1)[self._number]


def _merge(columns: Chunk, number: Integers, total: int) -> dict[str, NDArray[Any]]:
    if total == len(number):
        # Every cell has one row: there is nothing to add.
        row = np.empty(total, np.int64)
        row[number] = np.arange(total)
        return _single({name: column[row] for name, column in columns.items()})
    unknown = np.isnan(columns["loss_scale"])
    samples = np.full(total, -1, np.int64)
    np.maximum.at(samples, number, columns["samples"])
    scaled = np.zeros(total, bool)
    if unknown.any():
        scaled[number[unknown]] = True
    stages = {}
    if STAGE in columns:
        stages[STAGE] = np.zeros(total, np.int8)
        np.maximum.at(stages[STAGE], number, columns[STAGE])
    return {**merge_moments(columns, number, total), "samples": samples, "scaled": scaled, **stages}


def _single(columns: Chunk) -> dict[str, NDArray[Any]]:
    return {
        **single_moments(columns),
        "samples": columns["samples"],
        "scaled": np.isnan(columns["loss_scale"]),
        **{name: column for name, column in columns.items() if name == STAGE},
    }


def _in_both(key: Integers, below: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows have a counterpart with the same key on the other side."""
    keep = np.zeros(len(key), bool)
    keep[below] = np.isin(key[below], key[~below])
    keep[~below] = np.isin(key[~below], key[below])
    return keep


# The twin of ``src/protocol/moment-statistics.ts``.
def moment_columns(statistic: str | None) -> tuple[str, ...]:
    """Return the columns of moments that a statistic and its error need; all where none is named."""
    if statistic is None:
        return MOMENT_COLUMNS
    if statistic == "nonfinite":
        return ("count",)
    if statistic == "near_zero_share":
        return ("count", "near_zero_count")
    powers = (f"m{power}" for power in range(2, _POWERS.get(statistic, 2) + 1))
    return ("count", "mean", *powers, *((statistic,) if statistic in ("min", "max") else ()))


def reading_value(merged: Mapping[str, Column], statistic: str) -> Column:
    """Return a statistic of each group; NaN where there is none.

    ``nonfinite`` is always a count, and the share near zero is of all values.
    """
    if statistic == "near_zero_share":
        return near_zero_share(merged)
    if statistic == "nonfinite":
        return merged["nan_count"] + merged["inf_count"]
    return read_moments(merged, statistic)[statistic]


def reading_error(merged: Mapping[str, Column], statistic: str) -> Column:
    """Return how far rounding of raw sums may shift a statistic: 0 if exact, infinite if nothing is left."""
    inexact = (merged["m2_error"] > 0) | (merged["m4_error"] > 0)
    if not inexact.any() or statistic in ("min", "max", "near_zero_share", "nonfinite"):
        # Of millions of cells this takes no memory.
        return np.broadcast_to(np.float64(0), len(inexact))
    error = np.zeros(len(inexact))
    part = {name: column[inexact] for name, column in merged.items()}
    with np.errstate(all="ignore"):
        found = _error(part, statistic)
    error[inexact] = np.where(np.isnan(found), np.inf, found)
    return error


def _error(merged: Mapping[str, Column], statistic: str) -> Column:
    read = read_moments(merged)
    n, variance = merged["count"], read["variance"]
    # What the sum of x² may be off by: the contract's m2_error is three times that.
    squares, varies = merged["m2_error"] / 3, merged["m2_error"] / n
    relative = varies / variance
    if statistic == "mean":
        return squares / n / read["rms"]
    if statistic == "variance":
        return varies
    if statistic == "std":
        return _root(variance, varies)
    if statistic == "rms":
        return _root(read["rms"] ** 2, squares / n)
    if statistic == "l2":
        return _root(read["l2"] ** 2, squares)
    if statistic == "skewness":
        third = 2 * np.sqrt(squares * merged["m4_error"])
        skewness: Column = third / n / variance**1.5 + 1.5 * relative * np.abs(read["skewness"])
        return skewness
    fourth: Column = merged["m4_error"] / n / variance**2 + 2 * relative * np.abs(read["kurtosis"])
    return fourth


def _root(squared: Column, off: Column) -> Column:
    """Return the error of a root: the farther of the two ends of the interval."""
    root = np.sqrt(squared)
    farther: Column = np.maximum(root - np.sqrt(np.maximum(0, squared - off)), np.sqrt(squared + off) - root)
    return farther
