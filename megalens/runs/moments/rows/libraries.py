"""The libraries that questions need."""

from __future__ import annotations

__all__ = ["load_libraries"]


def load_libraries() -> None:
    """Import what the first question would, without DuckDB: a quarter of a second in advance."""
    # pyarrow looks for pandas when it is given values.
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
