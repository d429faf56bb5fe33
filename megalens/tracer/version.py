"""The version of this package, also in a checkout that was never built."""

from __future__ import annotations

from functools import cache
from importlib import import_module

__all__ = ["version"]


@cache
def version() -> str:
    """Return the version that peers are told."""
    try:
        return str(import_module("megalens._version").__version__)
    except (ImportError, AttributeError):
        return "0+checkout"
