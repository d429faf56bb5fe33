"""Reports: a run's views in one file that needs no kernel and no network."""

from .build import Progress, build_report, write_report
from .errors import ReportError

__all__ = ["Progress", "ReportError", "build_report", "write_report"]
