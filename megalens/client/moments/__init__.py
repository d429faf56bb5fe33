"""Moments of tensors as they were recorded: found, cached, filtered, grouped and merged where they lie. No pandas on the way, apart from the frame at the end."""

from .answer import MomentGroups
from .frame import moment_frame
from .grouping import GROUP_COLUMNS
from .live_rows import LiveRows
from .query import MomentQuery
from .recorded_rows import RecordedRows
from .rows import Progress
from .source import MomentSource
from .table_rows import TableRows

__all__ = [
    "GROUP_COLUMNS",
    "LiveRows",
    "MomentGroups",
    "MomentQuery",
    "MomentSource",
    "Progress",
    "RecordedRows",
    "TableRows",
    "moment_frame",
]
