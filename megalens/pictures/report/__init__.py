"""Reports: a run's views in one file that needs no kernel and no network."""

from .build import Progress, ReportError, build_report, write_report

__all__ = ["Progress", "ReportError", "build_report", "write_report"]
