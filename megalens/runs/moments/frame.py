"""What else is a ``pandas.DataFrame``: rows of statistics one by one, and what the explorer draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...protocol import MOMENT_COLUMNS, MOMENT_STATS, read_moments, shown_text
from ..errors import bad_argument
from .grouping.query import MomentQuery
from .jsonl.tree import StatisticsTree
from .source import MomentSource, check_present, group_frame
from .trainermon.csv_moments import readings_of
from .trainermon.files import KINDS, OTHER_KINDS

if TYPE_CHECKING:
    from pandas import DataFrame

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
