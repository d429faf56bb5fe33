"""Rows of another logger's files, whatever their layout is."""

from __future__ import annotations

from .jsonl.jsonl_rows import JsonlRows
from .jsonl.tree import StatisticsTree
from .rows.moment_rows import MomentRows
from .trainermon.trainermon_rows import TrainerMonRows

__all__ = ["rows_of"]


def rows_of(tree: StatisticsTree) -> MomentRows:
    """Return the rows of a run's files; they are read at the first refresh."""
    return TrainerMonRows(tree) if tree.layout == "trainermon" else JsonlRows(tree)
