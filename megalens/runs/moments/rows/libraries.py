"""The libraries that questions need."""

from __future__ import annotations

__all__ = ["load_libraries"]


def load_libraries() -> None:
    """Import what the first question would import: a quarter of a second that nobody has to wait for who is about to ask. DuckDB is loaded where a question needs it."""
    # pyarrow looks for pandas when it is given values.
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
