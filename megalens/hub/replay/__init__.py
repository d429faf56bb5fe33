"""A recorded run, served as if it were live: same rows, same order, same steps, by a real hub. Needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Replay, serve
    from .replayer import Replayer

__all__ = ["Replay", "Replayer", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".context", __name__), name)
