"""A run as files that other tools read."""

from .export import Export, Format, export_run

__all__ = ["Export", "Format", "export_run"]
