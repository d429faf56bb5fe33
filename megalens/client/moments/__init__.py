"""Moments of tensors as they were recorded: found, cached, filtered, grouped and merged where they lie. No pandas on the way, apart from the frame at the end."""

from .answer import MomentGroups
from .grouping import GROUP_COLUMNS
from .query import MomentQuery
from .recorded_rows import RecordedRows
from .rows import Progress
from .source import MomentSource
from .table_rows import TableRows

__all__ = [
    "GROUP_COLUMNS",
    "MomentGroups",
    "MomentQuery",
    "MomentSource",
    "Progress",
    "RecordedRows",
    "TableRows",
]
