"""Merged cells as an answer has them: the value that is asked for, how far it may be off, and what else is told of a group at a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....protocol import MOMENT_COLUMNS
from ..rows.moment_rows import STAGE
from .cells import Arena, Cells
from .query import MomentQuery
from .readings import reading_error, reading_value

__all__ = ["MERGED", "Part", "chosen_columns", "read_part"]

Column = NDArray[np.float64]
Whole = NDArray[np.int64]

MERGED = (*MOMENT_COLUMNS, "m2_error", "m4_error")
"""Columns of merged moments."""
_COUNTS = ("count", "nan_count", "inf_count")


@dataclass(frozen=True)
class Part:
    """Cells that were merged together: whole steps, in their order.

    Attributes
    ----------
    keys : mapping
        ``code`` of the group, then what rows say of it (``rank``, ``stage``); -1 is not known.
    step : ndarray
        Step of each cell.
    value : ndarray
        The statistic, or the ratio.
    bad : ndarray
        Whether there is anything in the cell that is not finite or not known.
    more : mapping
        Further columns: ``samples``, ``error``, ``scaled``, the stage of gradients (of a ratio those above) and moments; of a lean answer only the counts among these.
    steps : ndarray
        The different steps, ascending; also those of which cells were left out.
    across : int
        As in :class:`Cells`.
    """

    keys: Mapping[str, Whole]
    step: Whole
    value: Column
    bad: NDArray[np.bool_]
    more: Mapping[str, NDArray[Any]]
    steps: Whole
    across: int = 0

    def take(self, places: Whole, arena: Arena) -> Part:
        """Return some of the cells, in the order of ``places``, kept in an arena."""

        def taken(column: NDArray[Any]) -> NDArray[Any]:
            return arena.keep(column[places])

        return Part(
            {name: taken(key) for name, key in self.keys.items()},
            taken(self.step),
            taken(self.value),
            taken(self.bad),
            {name: taken(column) for name, column in self.more.items()},
            arena.keep(self.steps),
        )


def read_part(cells: Cells, query: MomentQuery) -> Part:
    """Read of merged cells what a query asks for."""
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


def chosen_columns(parts: Sequence[Part], places: Whole) -> dict[str, NDArray[Any]]:
    """Return the columns of some cells of all parts, of which there is at least one, in the order of ``places``: these count through the parts."""
    order = np.argsort(places, kind="stable")
    starts = np.concatenate([[0], np.cumsum([len(part.step) for part in parts])])
    bounds = np.searchsorted(places[order], starts)
    rows = [(to := order[bounds[at] : bounds[at + 1]], places[to] - starts[at]) for at in range(len(parts))]

    def gather(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
        # Nothing is joined before it is chosen: of millions of cells a picture takes thousands.
        found = np.empty(len(places), columns[0].dtype)
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
