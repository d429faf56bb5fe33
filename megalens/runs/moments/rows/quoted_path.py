"""A path as SQL text."""

from __future__ import annotations

import re
from os import PathLike, fspath

__all__ = ["literal", "quoted_path"]


def quoted_path(path: str | PathLike[str]) -> str:
    """Return a path as a literal that DuckDB reads as this one file, whatever characters it has."""
    plain = re.sub(r"[*?\[]", r"[\g<0>]", fspath(path))
    return literal(plain)


def literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
