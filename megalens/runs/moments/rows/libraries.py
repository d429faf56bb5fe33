"""The libraries that questions need."""

from __future__ import annotations


def load_libraries() -> None:
    """Import what the first question would, without DuckDB: a quarter of a second in advance."""
    # pyarrow imports pandas at the first conversion of values.
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
