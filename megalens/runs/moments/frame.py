"""Groups of moments as a ``pandas.DataFrame``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol import (
    MOMENT_COLUMNS,
    MOMENT_STATISTICS,
    MOMENT_STATS,
    in_ranges,
    read_moments,
    read_steps,
    shown_text,
)
from ..errors import ClientError, bad_argument, chosen_ranges
from .grouping.answer import MomentGroups
from .grouping.name_filter import Where
from .grouping.query import MomentQuery, check_stat
from .grouping.series import MERGED
from .jsonl.tree import StatisticsTree
from .rows.moment_rows import STAGE
from .source import MomentSource
from .trainermon.csv_moments import readings_of
from .trainermon.files import KINDS, OTHER_KINDS

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..query import StepChoice

FRAME_COLUMNS = (*MOMENT_STATISTICS, "variance_error", "kurtosis_error", "samples", "scaled", STAGE)
"""Columns behind the groups' own: statistics, extremes, the rounding errors of variance (relative) and
kurtosis (absolute), samples consumed (-1: unknown), whether an unknown loss scale may be in the values, and
the stage of gradients.
"""

_COLUMNS = {"layer_map": ["layer"], "item_map": ["item_type"], "tensors": ["name"]}


# Rows of statistics one by one, in the columns that TrainerMon's files have.
def own_readings(source: MomentSource, kind: str) -> DataFrame:
    stat = KINDS.get(kind, kind)
    if stat not in MOMENT_STATS:
        raise bad_argument("kind", f"one of {', '.join((*KINDS, *MOMENT_STATS))}", kind)
    rows = source.rows([stat])
    names = pa.array(source.index()["names"], pa.utf8())
    columns = {name: rows[name].to_numpy().astype(np.float64) for name in MOMENT_COLUMNS}
    read = read_moments(columns)
    table = pa.table(
        {
            "kind": pa.array([kind] * rows.num_rows, pa.utf8()),
            "rank": rows["rank"],
            "name": names.take(rows["name_id"].combine_chunks()),
            "step": rows["step"],
            "norm": read["l2"],
            "min": columns["min"],
            "max": columns["max"],
            "mean": read["mean"],
            "zeros": read["near_zero_share"],
            "nans": columns["nan_count"],
        }
    )
    return table.to_pandas()


def file_readings(tree: StatisticsTree, kind: str) -> tuple[DataFrame, list[str]]:
    """Return the lines of TrainerMon's files of a kind, and sentences about what was left out."""
    there = sorted({file.kind for file in tree.files()})
    ours = {stat: name for name, stat in KINDS.items()}
    wanted = kind if kind in there else ours.get(kind, kind)
    if wanted not in (*KINDS, *OTHER_KINDS, *there):
        raise bad_argument("kind", f"one of {shown_text(', '.join(there), 500)}", kind)
    table, problems = readings_of(tree, wanted)
    return table.to_pandas(), problems


def explored(source: MomentSource, options: Mapping[str, Any], *, live: bool) -> DataFrame:
    """Return the rows that the explorer's options draw, neither thinned nor smoothed, nor cut to the largest
    series.

    ``options`` are all options of the view ``moments``; where a ``live`` run has nothing yet, that is no
    error. The columns are those of ``run.moments`` (of a ratio those of the dividend) and ``value``, shown as
    the options say.
    """
    source.refresh()
    # Of a ratio it is what is divided.
    measured = "grad" if options["ratio"] == "grad_to_param" else str(options["stat"])
    if not live:
        check_present(source, [measured])
    steps = options["steps"]
    if options["kind"] == "layers" or _across(options):
        steps = _drawn_step(source, measured, options)
    by = _columns_of(options)
    answer = source.groups(
        _query(measured, options, options["statistic"], by, steps, options["mixed"], show=options["show"])
    )
    return group_frame(measured, answer, value=answer.table["value"].to_numpy())


def _columns_of(options: Mapping[str, Any]) -> list[str]:
    """Return the grouping columns of this kind of chart; an overview has the total and the families."""
    if options["kind"] == "layers":
        return ["layer", *(column for column in options["by"] if column != "layer")]
    rows = list(_COLUMNS.get(options["kind"], options["by"]))
    across = _across(options)
    return [*(column for column in rows if column not in across), *across]


def _across(options: Mapping[str, Any]) -> list[str]:
    is_map = options["kind"] in ("map", "layer_map", "item_map")
    return [options["columns"]] if is_map and options["columns"] != "step" else []


def _drawn_step(source: MomentSource, measured: str, options: Mapping[str, Any]) -> tuple[int, int]:
    """Return the layer chart's step twice: the nearest to the chosen or the newest, or one before all."""
    found = source.groups(_query(measured, options, "nonfinite", [], None, True))
    steps = np.unique(found.table["step"].to_numpy())
    if not len(steps):
        return -1, -1
    step = int(steps[-1] if options["step"] is None else steps[np.abs(steps - options["step"]).argmin()])
    return step, step


def _query(
    measured: str,
    options: Mapping[str, Any],
    statistic: str,
    by: Sequence[str],
    steps: Sequence[int] | None,
    mixed: bool,
    show: str = "raw",
) -> MomentQuery:
    pattern, where, ratio = options["pattern"], options["where"], options["ratio"]
    return MomentQuery.of_request(
        measured, statistic, by, pattern, where, steps, ratio=ratio, mixed=mixed, show=show
    )


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

    Raises ``ClientError``: ``bad-parameter`` naming the argument, ``mixed``, or ``not-found`` when a run that
    gets no more rows has nothing of that stat.
    """
    chosen = chosen_ranges(steps, "steps", read_steps)
    span = None if chosen is None else (chosen[0][0], chosen[-1][1]) if chosen else (0, -1)
    if isinstance(by, str) or callable(by) or not hasattr(by, "__iter__"):
        by = [by]
    stats = [check_stat(one) for one in ([stat] if isinstance(stat, str) else stat)]
    queries = [MomentQuery.of_request(one, "mean", list(by), None, where, span, mixed=mixed) for one in stats]
    if not live:
        check_present(source, stats)
    frames = [group_frame(one, source.groups(query)) for one, query in zip(stats, queries, strict=True)]
    import pandas as pd

    joined: DataFrame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    if chosen is None or len(chosen) < 2:
        return joined
    # The steps between those that were asked for are grouped too, and left out here.
    inside = joined["step"].map(lambda step: in_ranges(step, chosen))
    return joined[inside].reset_index(drop=True)


def check_present(source: MomentSource, stats: Sequence[str]) -> None:
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
    """Return one row for each step and group; ``more`` are further columns."""
    import pandas as pd

    table = groups.table
    merged = {name: table[name].to_numpy() for name in MERGED}
    read = read_moments(merged)
    keys = table.column_names[: table.column_names.index("step")]
    columns: dict[str, Any] = {"step": table["step"].to_numpy()}
    for name in keys:
        column = table[name].to_pandas()
        if table[name].null_count and pd.api.types.is_numeric_dtype(column):
            # Not float: a layer stays an integer next to missing ones.
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
