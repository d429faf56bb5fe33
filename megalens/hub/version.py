"""What the hub itself is made of."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import pyarrow as pa

__all__ = ["own_versions"]


def own_versions() -> dict[str, str]:
    """Return the versions that go into ``hello``."""
    try:
        own = version("megalens")
    except PackageNotFoundError:
        own = "0"
    return {"megalens": own, "python": platform.python_version(), "pyarrow": str(pa.__version__)}
