"""Reports: a run's views frozen into one file that needs no kernel and no network."""

from .build import Progress, build_report, default_views, write_report
from .draw import draw_picture
from .errors import ReportError
from .picture import Picture

__all__ = [
    "Picture",
    "Progress",
    "ReportError",
    "build_report",
    "default_views",
    "draw_picture",
    "write_report",
]
