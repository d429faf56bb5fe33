"""Aggregation of a million rows: the browser's path beside plain arquero, a bare loop and DuckDB."""
