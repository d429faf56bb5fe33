"""The Jupyter server extension of Megalens: relay, recorded runs, reports."""

from __future__ import annotations

from typing import Any

from .errors import ServerError
from .extension import MegalensExtension
from .registry import RunRegistry

__all__ = ["MegalensExtension", "RunRegistry", "ServerError"]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "megalens.server", "app": MegalensExtension}]
