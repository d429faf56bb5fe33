"""A path as SQL text."""

from __future__ import annotations

import re
from os import PathLike, fspath

__all__ = ["quoted_path"]


def quoted_path(path: str | PathLike[str]) -> str:
    """Return a path as a literal that DuckDB reads as this one file, whatever characters it has."""
    plain = re.sub(r"[*?\[]", r"[\g<0>]", fspath(path))
    return "'" + plain.replace("'", "''") + "'"
