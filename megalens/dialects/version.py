"""The version that the hosted producers name."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["own_version"]


def own_version() -> str:
    """Return the installed version, or ``0`` in a checkout that was never installed."""
    try:
        return version("megalens")
    except PackageNotFoundError:
        return "0"
