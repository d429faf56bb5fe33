"""The usual level and deviation of each series: medians over windows, which one outlier does not move."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...protocol import CAST_STATS, RANK_SCALAR

MODULE_END = re.compile(r"/(input|output)\d*(/\w+:\w+)?$|/\w+:\w+$")
"""The suffix of a module's name in the names of tensors at its ends, and of casts."""


Column = NDArray[np.float64]
Rows = NDArray[np.intp]

RECENT, WINDOW, BLOCKS = 8, 64, 16
"""Values of a level's median, deviations of their median, and stored levels, one of :data:`RECENT` values."""

DIRECTIONS = {
    "param_origin": "parameters",
    "stable_rank": "parameters",
    "kernel_norm": "parameters",
    "dgrad": "backward",
    "residual_dgrad": "backward",
    "grad_accumulated": "backward",
    "grad_unreduced": "reduction",
    "grad": "reduction",
    "communication": "reduction",
    "exp_avg": "optimizer",
    "exp_avg_sq": "optimizer",
    "gradient_direction": "optimizer",
    "param": "update",
    "memory": "compute",
}
"""The part of the step in which a statistic arises; by default the forward pass."""

# Of each part: before, in or after the micro-batches; order in its kind; and whether last layer first.
_PARTS = {
    # Read before the step begins.
    "compute": (0, 0, False),
    "parameters": (0, 0, False),
    "forward": (1, 0, False),
    "loss": (1, 1, False),
    "backward": (1, 2, True),
    "reduction": (2, 0, True),
    "optimizer": (3, 0, False),
    "update": (4, 0, False),
}
# A gradient is there before it is reduced, and that of a module's inside before that of a parameter.
_LATER_IN_PART = {"grad": 1, "grad_accumulated": 1}
_MICRO_BATCH_BITS, _PART_BITS, _LATER_BITS, _STAGE_BITS, _INDEX_BITS, _RANK_BITS = 10, 2, 1, 8, 17, 12
_EMBEDDING = re.compile(r"embed|\bw[tp]e\b", re.IGNORECASE)


def direction_of(stat: str, name: str = "") -> str:
    """Return the part of the step in which a statistic arises, as in the stream ``alarms``."""
    if stat in ("scalar", RANK_SCALAR):
        return "loss" if "loss" in name.lower() else "optimizer"
    if stat in CAST_STATS:
        stat = name.rpartition("/")[2].partition(":")[0]
        # This step computes with the parameters that are cast.
        return "parameters" if stat == "param" else DIRECTIONS.get(stat, "forward")
    return DIRECTIONS.get(stat, "forward")


def module_order(by_stat: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the index of each tensor of one process in the order of a forward pass.

    ``by_stat`` has the names as they were measured: those of activations in the order in which modules ran,
    those of their gradients in that of the backward pass.
    """
    ran = list(by_stat.get("activation") or reversed(by_stat.get("dgrad", ())))
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for at, name in enumerate(ran):
        path = ""
        for part in MODULE_END.sub("", name).split("."):
            path = f"{path}.{part}" if path else part
            first.setdefault(path, at)
            last[path] = at
    order: dict[str, float] = {name: float(at) for at, name in enumerate(ran)}
    rest = dict.fromkeys(name for names in by_stat.values() for name in names if name not in order)
    before = -1.0
    for name in rest:
        path = MODULE_END.sub("", name)
        while path not in first and "." in path:
            path = path.rpartition(".")[0]
        ends = "/output" in name
        if path in first:
            before = last[path] + 0.5 if ends else first[path] - 0.25
        # A tensor of no module follows its predecessor in the list; embeddings first.
        order[name] = -1.0 if _EMBEDDING.search(name) else before
    given = {name: at for at, name in enumerate(order)}
    ranked = sorted(order, key=lambda name: (order[name], not _EMBEDDING.search(name), given[name]))
    return {name: float(at) for at, name in enumerate(ranked)}


def trace_order(
    stats: Sequence[str],
    names: Sequence[str],
    ranks: NDArray[np.integer],
    stages: NDArray[np.integer],
    micro_batches: NDArray[np.integer],
    index: NDArray[np.floating],
) -> NDArray[np.int64]:
    """Return the column ``place`` of rows: a number below 2**53 that rises with the order of a step's
    computation.

    At equal positions on several ranks the lowest comes first. ``ranks``, ``stages`` and ``micro_batches``
    are -1 where absent; ``index`` is that of :func:`module_order`.
    """
    directions = [direction_of(stat, name) for stat, name in zip(stats, names, strict=True)]
    phase, part, back = (np.array([_PARTS[each][at] for each in directions], np.int64) for at in range(3))
    later = np.array([_LATER_IN_PART.get(stat, 0) for stat in stats], np.int64)
    stage = _clipped(stages, _STAGE_BITS)
    order = _clipped(index, _INDEX_BITS)
    top_stage, top_index = (1 << _STAGE_BITS) - 1, (1 << _INDEX_BITS) - 1
    stage = np.where(back == 1, top_stage - stage, stage)
    order = np.where(back == 1, top_index - order, order)
    # Of the complete step: before the second micro-batch.
    micro_batch = np.where(phase == 1, _clipped(micro_batches, _MICRO_BATCH_BITS), 0)
    packed: NDArray[np.int64] = phase
    for bits, field in (
        (_MICRO_BATCH_BITS, micro_batch),
        (_PART_BITS, part),
        (_LATER_BITS, later),
        (_STAGE_BITS, stage),
        (_INDEX_BITS, order),
        (_RANK_BITS, _clipped(ranks, _RANK_BITS)),
    ):
        packed = (packed << bits) | field
    return packed


def _clipped(values: NDArray[Any], bits: int) -> NDArray[np.int64]:
    clipped: NDArray[np.int64] = np.clip(values, 0, (1 << bits) - 1).astype(np.int64)
    return clipped


# From a median of absolute differences to a standard deviation, of a normal distribution.
_TO_SIGMA = 1.4826
# Steps within which each series' deviation is recomputed.
_TURNS = 8
# So many outliers in a row are a new level.
_ADOPT = 12


@dataclass(frozen=True)
class Past:
    """The rows' history before this step, of one quantity.

    Attributes
    ----------
    seen : ndarray
        Values that entered the level.
    level : ndarray
        Median of the last :data:`RECENT`; NaN where there are none.
    sigma : ndarray
        Usual deviation of a value from the level before it, robust: 1.4826 times the median; NaN where it is
        not known.
    off : ndarray
        This step's deviation from the level.
    top : ndarray
        Largest level there ever was.
    blocks : callable
        Takes rows and returns ``[n, BLOCKS]``, the levels of their blocks, the newest last; NaN before there
        were any.
    """

    seen: NDArray[np.int64]
    level: Column
    sigma: Column
    off: Column
    top: Column
    blocks: Callable[[Rows], Column]

    @cached_property
    def new_block(self) -> NDArray[np.bool_]:
        """Whether the step before completed a block, whose level shares no values with earlier blocks."""
        found: NDArray[np.bool_] = (self.seen > 0) & (self.seen % RECENT == 0)
        return found

    @cached_property
    def settled(self) -> Column:
        """:attr:`off` where enough is known to judge; else 0."""
        return np.where((self.seen >= RECENT) & np.isfinite(self.off), self.off, 0.0)


_ARRAYS = ("seen", "_strays", "level", "sigma", "top", "recent", "offs", "blocks")


class Levels:
    """Level and deviation of every series, of several quantities at once, which costs no more calls."""

    def __init__(self, quantities: int) -> None:
        self._quantities = quantities
        self._each = np.arange(quantities)[:, None]
        # Entry series · quantities + quantity.
        self.seen = np.zeros(0, np.int64)
        self._strays = np.zeros(0, np.int64)
        self.level, self.sigma = np.zeros(0), np.zeros(0)
        self.top = np.zeros(0)
        self.recent, self.offs = np.zeros((0, RECENT)), np.zeros((0, WINDOW))
        self.blocks = np.zeros((0, BLOCKS))
        self._turn = 0

    def __len__(self) -> int:
        return len(self.seen) // self._quantities

    def grow(self, series: int) -> None:
        """Make space for more series."""
        more = (series - len(self)) * self._quantities
        if more <= 0:
            return
        for name in _ARRAYS:
            array = getattr(self, name)
            fill = 0 if array.dtype == np.int64 else np.nan
            added = np.full((more, *array.shape[1:]), fill, array.dtype)
            setattr(self, name, np.concatenate((array, added)))

    def past(self, quantity: int, series: Rows, values: Column) -> Past:
        """Return the history of series before ``values``, of one quantity."""
        at = series * self._quantities + quantity
        level = self.level[at]
        return Past(
            *(self.seen[at], level, self.sigma[at], values - level, self.top[at]),
            lambda rows: self.blocks[at[rows]],
        )

    def take(self, series: Rows, values: Column, stray: NDArray[np.bool_]) -> None:
        """Add values ``[quantities, series]`` to the level.

        Values that are not finite or stray do not enter; but many strays in a row are a new level.
        """
        self._turn += 1
        at, values, stray = (series * self._quantities + self._each).ravel(), values.ravel(), stray.ravel()
        good = np.isfinite(values)
        if stray.any() or self._strays[at].any():
            strays = np.where(stray & good, self._strays[at] + 1, 0)
            self._strays[at] = strays
            adopted = strays >= _ADOPT
            anew = at[adopted]
            if len(anew):
                self.seen[anew] = 0
                self.level[anew] = self.sigma[anew] = np.nan
                self.recent[anew] = self.offs[anew] = self.blocks[anew] = np.nan
                self._strays[anew] = 0
            good &= ~stray | adopted
        at, values = at[good], values[good]
        if not len(at):
            return
        seen = self.seen[at]
        # The first has no level to deviate from: the oldest one later replaces it.
        self.offs[at, np.maximum(seen - 1, 0) % WINDOW] = np.abs(values - self.level[at])
        self.recent[at, seen % RECENT] = values
        self.seen[at] = after = seen + 1
        level = self.level[at] = median_of(self.recent[at])
        self.top[at] = np.fmax(self.top[at], level)
        complete = after % RECENT == 0
        if complete.any():
            ended = at[complete]
            self.blocks[ended, :-1] = self.blocks[ended, 1:]
            self.blocks[ended, -1] = level[complete]
        turn = (seen < 2 * RECENT) | (at // self._quantities % _TURNS == self._turn % _TURNS)
        due = at[turn]
        if len(due):
            self.sigma[due] = _TO_SIGMA * median_of(self.offs[due])


def group_medians(values: Column, groups: NDArray[np.int64], *, lower: bool = False) -> Column:
    """Return the median of each group's values by its number, the upper one of two, or the ``lower``."""
    order = np.lexsort((values, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    counts = np.diff(starts, append=len(order))
    found = np.full(groups.max() + 1, np.nan)
    found[groups[order[starts]]] = values[order[starts + (counts - lower) // 2]]
    return found


def median_of(values: Column) -> Column:
    """Return the median of each row's numbers, the upper one of two; NaN does not count."""
    values = np.sort(values, axis=1)
    count = values.shape[1] - np.isnan(values).sum(axis=1)
    middle: Column = values[np.arange(len(values)), count // 2]
    return middle
