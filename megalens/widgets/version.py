"""The version range under which the browser side is asked for."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["MODULE_RANGE"]


def _range() -> str:
    try:
        return f"^{version('megalens')}"
    except PackageNotFoundError:
        # A checkout that was never installed still draws: any version of the browser side will do.
        return "*"


MODULE_RANGE: str = _range()
"""npm range for ``_model_module_version``: the installed version and what is compatible with it."""
