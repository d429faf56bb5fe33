"""The version that this package names itself by, in messages and towards the browser side."""

from __future__ import annotations

import platform
from functools import cache

import pyarrow as pa

__all__ = ["own_version", "own_versions"]


@cache
def own_version() -> str:
    """Return the installed version, or ``0`` in a checkout that was never installed."""
    # To import it takes as long as what a short command is made of.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("megalens")
    except PackageNotFoundError:
        return "0"


def own_versions() -> dict[str, str]:
    """Return the versions of megalens, Python and pyarrow in this process."""
    return {"megalens": own_version(), "python": platform.python_version(), "pyarrow": str(pa.__version__)}
