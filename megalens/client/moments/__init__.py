"""Moments of tensors as they were recorded: found, cached, filtered, grouped and merged where they lie. No pandas on the way, apart from the frame at the end."""

from .answer import MomentGroups
from .frame import moment_frame
from .grouping import GROUP_COLUMNS
from .jsonl_rows import JsonlRows
from .libraries import load_libraries
from .live_rows import LiveRows
from .progress_bar import ProgressBar
from .query import MomentQuery
from .recorded_rows import RecordedRows
from .rows import Progress
from .source import MomentSource
from .table_rows import TableRows
from .tree import StatisticsFile, StatisticsTree, find_trees, holds_statistics

__all__ = [
    "GROUP_COLUMNS",
    "JsonlRows",
    "LiveRows",
    "MomentGroups",
    "MomentQuery",
    "MomentSource",
    "Progress",
    "ProgressBar",
    "RecordedRows",
    "StatisticsFile",
    "StatisticsTree",
    "TableRows",
    "find_trees",
    "holds_statistics",
    "load_libraries",
    "moment_frame",
]
