"""The rows that the explorer of statistics draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..client import Run

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["explored"]


def explored(run: Run, options: Mapping[str, Any]) -> DataFrame:
    """Return the rows of a run that options of the explorer draw: neither thinned nor smoothed, nor cut to the largest series."""
    ask: Any = run
    frame: DataFrame = ask.moments(
        options["stat"], group_by=options["by"], steps=options["steps"], where=options["where"]
    )
    return frame
