"""The files and rules of TrainerMon, msProbe's monitor, read and written as its own tools do."""

from __future__ import annotations

from typing import Any

__all__ = ["csv2tensorboard_by_step"]


def __getattr__(name: str) -> Any:
    if name == "csv2tensorboard_by_step":
        from .convert import csv2tensorboard_by_step

        return csv2tensorboard_by_step
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
