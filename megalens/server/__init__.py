"""The Jupyter server extension of Megalens: relay, recorded runs, reports.

Importing it imports nothing: the process that reads files (``reader``) is here too, and needs no Jupyter.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from .extension import MegalensExtension

    return [{"module": "megalens.server", "app": MegalensExtension}]
