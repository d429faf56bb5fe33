"""Regrouping a million rows of moments: the browser's worker beside a bare loop and DuckDB."""
