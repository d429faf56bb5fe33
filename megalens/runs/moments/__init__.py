"""Recorded moments of tensors: found, cached, filtered, grouped and merged where they are stored."""

from .grouping.answer import MomentGroups
from .grouping.query import GROUP_COLUMNS, MomentQuery
from .jsonl.imported_rows import rows_of
from .jsonl.tree import StatisticsFile, StatisticsTree, find_trees, holds_statistics
from .progress_bar import ProgressBar
from .rows.live_rows import LiveRows
from .rows.pieces import Progress
from .rows.recorded_rows import RecordedRows
from .source import MomentSource, load_libraries, moment_frame

__all__ = [
    "GROUP_COLUMNS",
    "LiveRows",
    "MomentGroups",
    "MomentQuery",
    "MomentSource",
    "Progress",
    "ProgressBar",
    "RecordedRows",
    "StatisticsFile",
    "StatisticsTree",
    "find_trees",
    "holds_statistics",
    "load_libraries",
    "moment_frame",
    "rows_of",
]
