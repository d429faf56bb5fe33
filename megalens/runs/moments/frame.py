"""Groups of moments as a ``pandas.DataFrame``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from numpy.typing import NDArray

from ...protocol import MOMENT_STATISTICS, MOMENT_STATS, in_ranges, read_moments
from ..errors import ClientError
from ..query import Query, StepChoice
from .grouping.answer import MomentGroups
from .grouping.name_filter import Where
from .grouping.parts import MERGED
from .grouping.query import MomentQuery, check_stat
from .rows.stages import STAGE
from .source import MomentSource

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["FRAME_COLUMNS", "check_present", "group_frame", "moment_frame"]

FRAME_COLUMNS = (*MOMENT_STATISTICS, "variance_error", "kurtosis_error", "samples", "scaled", STAGE)
"""Columns behind the groups' own: statistics, then extremes, the bounds of what raw sums leave of variance (relative) and kurtosis (absolute), the training samples
consumed (-1 where nobody said), whether a loss scale that is not known may be in the values, and at which stage gradients were measured.
"""


def moment_frame(
    source: MomentSource,
    stat: str | Sequence[str],
    by: Any,
    steps: StepChoice,
    where: Where,
    mixed: bool,
    *,
    live: bool = False,
) -> DataFrame:
    """Return one row for each stat, step and group, in that order.

    Raises
    ------
    ClientError
        ``bad-parameter`` naming the argument, ``mixed``, or ``not-found`` when a run that gets no more rows has nothing of that stat.
    """
    bounds = Query.of(steps=steps)
    if isinstance(by, str) or callable(by) or not hasattr(by, "__iter__"):
        by = [by]
    stats = [check_stat(one) for one in ([stat] if isinstance(stat, str) else stat)]
    queries = [
        MomentQuery.of(one, "mean", list(by), None, where, bounds.first, bounds.last, mixed=mixed)
        for one in stats
    ]
    if not live:
        check_present(source, stats)
    frames = [group_frame(one, source.groups(query)) for one, query in zip(stats, queries, strict=True)]
    import pandas as pd

    joined: DataFrame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    if bounds.steps is None:
        return joined
    # The steps between those that were asked for are grouped too, and left out here.
    kept = joined["step"].map(lambda step: in_ranges(step, bounds.steps))
    return joined[kept].reset_index(drop=True)


def check_present(source: MomentSource, stats: Sequence[str]) -> None:
    """Raise :class:`ClientError` ``not-found`` when a run has nothing of one of some stats."""
    present = [one for one in MOMENT_STATS if source.names(one)]
    absent = [one for one in stats if one not in present]
    if absent:
        what = (
            f"It has {', '.join(present)}."
            if present
            else "It has no statistics at all; see megalens.log_statistics."
        )
        raise ClientError(
            f"This run has no statistics of {absent[0]}. {what}", code="not-found", field="stat"
        )


def group_frame(stat: str, groups: MomentGroups, **more: NDArray[Any]) -> DataFrame:
    """Return one row for each step and group.

    Parameters
    ----------
    stat : str
        What was measured.
    groups : MomentGroups
        The groups.
    **more : ndarray
        Further columns, one entry for each row of the groups' table.
    """
    import pandas as pd

    table = groups.table
    merged = {name: table[name].to_numpy() for name in MERGED}
    read = read_moments(merged)
    keys = table.column_names[: table.column_names.index("step")]
    columns: dict[str, Any] = {"step": table["step"].to_numpy()}
    for name in keys:
        column = table[name].to_pandas()
        if table[name].null_count and pd.api.types.is_numeric_dtype(column):
            # Not float: a layer stays a whole number beside those that have none.
            column = pd.Series(pd.array(table[name].to_pylist(), dtype="Int64"))
        columns[name] = column
    columns |= {name: read[name] if name in read else _plain(table[name]) for name in FRAME_COLUMNS}
    columns |= more
    frame: DataFrame = pd.DataFrame(columns).sort_values("step", kind="stable", ignore_index=True)
    frame.insert(0, "stat", stat)
    return frame


def _plain(column: pa.ChunkedArray) -> NDArray[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.utf8())
    plain: NDArray[Any] = column.to_numpy()
    return plain
