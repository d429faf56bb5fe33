"""Rows of statistics one by one, in the columns that TrainerMon's files have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...protocol import MOMENT_COLUMNS, MOMENT_STATS, read_moments, shown_text
from ..arguments import bad_argument
from .jsonl.tree import StatisticsTree
from .source import MomentSource
from .trainermon.files import KINDS, OTHER_KINDS
from .trainermon.trainermon_rows import readings_of

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["file_readings", "own_readings"]


def own_readings(source: MomentSource, kind: str) -> DataFrame:
    """Return the rows of one statistic of a run of ours; see :meth:`megalens.runs.run.Run.readings`."""
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
    """Return the lines of TrainerMon's files of a kind as they are, and sentences on what was left out."""
    there = sorted({file.kind for file in tree.files()})
    ours = {stat: name for name, stat in KINDS.items()}
    wanted = kind if kind in there else ours.get(kind, kind)
    if wanted not in (*KINDS, *OTHER_KINDS, *there):
        raise bad_argument("kind", f"one of {shown_text(', '.join(there), 500)}", kind)
    table, said = readings_of(tree, wanted)
    return table.to_pandas(), said
