"""Thousands of runs beside each other by one scalar: quantiles over them by step, and outliers first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .errors import ClientError, bad_argument
from .opening import run_folders
from .run_courses import BLOCKS, Column, RunCourses, ScalarCourse, scalar_names

if TYPE_CHECKING:
    from pandas import DataFrame

Scale = Literal["linear", "log"]
Why = Literal["not-finite", "short", "far", "usual"]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# The share of the median run's steps that a run must have, not to be called short.
_SHORT = 0.5
# So many times the usual distance is far.
_FAR = 5.0


def compare(
    runs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    name: str | None = None,
    *,
    scale: Scale = "linear",
) -> ComparedRuns:
    """Compare many recorded runs by one scalar, outliers first.

    Parameters
    ----------
    runs : str, path or iterable of them
        Run folders, folders of run folders, or patterns such as ``runs/*``; at most 5,000 runs.
    name : str, optional
        The scalar; a loss, or the first there is, when absent.
    scale : str
        ``linear`` measures how far runs are apart in the scalar's own unit, ``log`` in decades.

    Raises
    ------
    ClientError
        When no run has that scalar; says what there is.
    """
    if scale not in ("linear", "log"):
        raise bad_argument("scale", "'linear' or 'log'", scale)
    folders = _folders([runs] if isinstance(runs, (str, os.PathLike)) else runs)
    if not folders:
        raise ClientError("No run folder is there. Give run folders or a pattern such as runs/*.")
    names = scalar_names(folders)
    chosen = name or (names[0] if names else "loss")
    found = RunCourses(chosen, Path(os.path.commonpath([each.parent for each in folders]))).of(folders)
    there = [
        (path, course)
        for path, course in zip(folders, found, strict=True)
        if course is not None and len(course.block)
    ]
    if not there:
        known = ", ".join(names) or "none"
        raise ClientError(f"No run has the scalar {chosen!r}. Some of them have: {known}.", field="name")
    return ComparedRuns.of([course for _, course in there], scale, folders=[path for path, _ in there])


def _folders(runs: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the run folders that paths and patterns name, each once."""
    found: dict[Path, None] = {}
    for each in runs:
        if not isinstance(each, (str, os.PathLike)):
            raise bad_argument("runs", "paths of run folders, or patterns of them", each)
        found.update(dict.fromkeys(folder.absolute() for folder in run_folders(each)))
    return list(found)


@dataclass(frozen=True)
class ComparedRuns:
    """Courses of many runs beside each other.

    Attributes
    ----------
    courses, folders : sequence
        The runs, and where they are.
    steps : ndarray
        The last step of each block.
    low, high, last : ndarray
        ``[runs, blocks]``; NaN where a run has no row.
    quantiles : ndarray
        ``[5, blocks]``: of the runs' last finite values in each block, 5, 25, 50, 75 and 95 %.
    counts : ndarray
        Of how many runs that is, by block.
    distance : ndarray
        The median, over a run's blocks, of how far it is from the median run (in decades on the scale
        ``log``); NaN without values.
    order : ndarray
        Indices of the runs, outliers first: those with a value that is not finite, those with less than half
        of the steps of the median run, then the farthest.
    """

    courses: Sequence[ScalarCourse]
    folders: Sequence[Path]
    steps: Column
    low: Column
    high: Column
    last: Column
    quantiles: Column
    counts: NDArray[np.int64]
    distance: Column
    short: NDArray[np.bool_]
    order: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        courses: Sequence[ScalarCourse],
        scale: Scale = "linear",
        most: int = BLOCKS,
        folders: Sequence[Path] = (),
    ) -> ComparedRuns:
        level = max((each.level for each in courses), default=0)
        firsts = [int(each.block[0]) << each.level for each in courses if len(each.block)]
        ends = [each.end for each in courses if len(each.block)]
        first, end = min(firsts, default=0), max(ends, default=-1)
        while (end >> level) - (first >> level) >= most:
            level += 1
        blocks = (end >> level) - (first >> level) + 1 if ends else 0
        shown = np.full((3, len(courses), blocks), np.nan)
        for at, course in enumerate(courses):
            fine = course.at(level)
            where = fine.block.astype(np.int64) - (first >> level)
            shown[:, at, where] = fine.low, fine.high, fine.last
        low, high, last = shown
        values = np.where(np.isfinite(last), last, np.nan)
        quantiles, counts = _bands(values)
        course_of, middle = values, quantiles[2]
        if scale == "log":
            with np.errstate(divide="ignore", invalid="ignore"):
                course_of, middle = (np.where(each > 0, np.log10(each), np.nan) for each in (values, middle))
        distance = _row_medians(np.abs(course_of - middle))
        all_ends = np.array([each.end for each in courses], float)
        short = all_ends < _SHORT * (np.median(ends) if ends else 0)
        bad = np.array([each.bad_at >= 0 for each in courses], bool)
        order = np.lexsort((-np.nan_to_num(distance, nan=-1.0), ~short, ~bad))
        steps = ((np.arange(blocks) + (first >> level) + 1) << level) - 1.0
        return cls(
            courses,
            folders,
            steps.clip(max=max(end, 0)),
            low,
            high,
            last,
            quantiles,
            counts,
            distance,
            short,
            order,
        )

    @property
    def table(self) -> DataFrame:
        """A row for each run, outliers first."""
        import pandas as pd

        rows = [{"run": self.folders[at].name, **self.facts(at)} for at in self.order.tolist()]
        return pd.DataFrame(rows)

    @property
    def bands(self) -> DataFrame:
        """Quantiles over the runs by step, and of how many runs they are."""
        import pandas as pd

        columns = {f"{part:.0%}": row for part, row in zip(QUANTILES, self.quantiles, strict=True)}
        return pd.DataFrame({"step": self.steps.astype(int), **columns, "runs": self.counts})

    def _repr_html_(self) -> str:
        return str(self.table._repr_html_())

    def bands_of(self, rows: Sequence[int]) -> tuple[Column, NDArray[np.int64]]:
        """Return the quantiles of some runs, ``[5, blocks]``, and of how many they are in each block."""
        values = self.last[list(rows)]
        return _bands(np.where(np.isfinite(values), values, np.nan))

    def why(self, at: int) -> Why:
        """Return what stands out in a run: far is beyond 5 times the usual distance."""
        if self.courses[at].bad_at >= 0:
            return "not-finite"
        if self.short[at]:
            return "short"
        known = self.distance[np.isfinite(self.distance)]
        middle = np.median(known) if len(known) else 0.0
        return "far" if self.distance[at] > _FAR * middle and len(known) > 2 else "usual"

    def facts(self, at: int) -> dict[str, Any]:
        """Return a run's summary: what a table of runs has as columns."""
        course = self.courses[at]
        return {
            "final": float(course.last[-1]) if len(course.last) else None,
            "min": _least(course.low),
            "last_step": course.end,
            "distance": float(self.distance[at]),
            "why": self.why(at),
            "bad_at": None if course.bad_at < 0 else course.bad_at,
        }


def _least(low: Column) -> float | None:
    known = low[np.isfinite(low)]
    return float(known.min()) if len(known) else None


def _bands(values: Column) -> tuple[Column, NDArray[np.int64]]:
    """Return the quantiles of each column's finite values, as ``numpy.nanquantile`` has them but at once, and
    their number.
    """
    counts = np.isfinite(values).sum(axis=0)
    found = np.full((len(QUANTILES), values.shape[1]), np.nan)
    # NaN comes last in a sort.
    ordered = np.sort(values, axis=0)
    some = np.flatnonzero(counts)
    for row, part in zip(found, QUANTILES, strict=True):
        place = part * (counts[some] - 1)
        under = np.floor(place).astype(np.int64)
        below, above = ordered[under, some], ordered[np.ceil(place).astype(np.int64), some]
        row[some] = below + (above - below) * (place - under)
    return found, counts


def _row_medians(values: Column) -> Column:
    counts = np.isfinite(values).sum(axis=1)
    ordered, found = np.sort(values, axis=1), np.full(len(values), np.nan)
    some = np.flatnonzero(counts)
    found[some] = (ordered[some, (counts[some] - 1) // 2] + ordered[some, counts[some] // 2]) / 2
    return found
