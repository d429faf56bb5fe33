"""Reports: a run's views frozen into one file that needs no kernel and no network."""

from .draw import draw_picture
from .errors import ReportError
from .picture import Picture

__all__ = ["Picture", "ReportError", "draw_picture"]
