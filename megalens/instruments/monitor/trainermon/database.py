"""TrainerMon's files as the SQLite file that msProbe's trend viewer reads."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....protocol import MegalensError
from ....runs.moments import find_trees
from ....runs.moments.trainermon.files import KINDS, read_csv_table

__all__ = ["DATABASE", "write_database"]

DATABASE = "monitor_data.trend.db"

_STATS = ("norm", "min", "max", "zeros", "nans", "id", "mean")
_METRICS = (*KINDS, "other")
_LARGEST = 1e9
_TABLES = """
CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY, target_name TEXT NOT NULL, vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL, UNIQUE (target_name, vpp_stage, micro_step));
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY, metric_name TEXT NOT NULL UNIQUE);
CREATE TABLE monitoring_tags (tag_id INTEGER PRIMARY KEY, tag_name TEXT NOT NULL, category TEXT NOT NULL, metric_id INTEGER NOT NULL, UNIQUE (tag_name, category, metric_id));
CREATE TABLE tag_target_mapping (tag_id INTEGER NOT NULL, target_id INTEGER NOT NULL, PRIMARY KEY (tag_id, target_id));
"""


def write_database(
    folder: Path,
    out: Path,
    *,
    micro_step: bool = True,
    names: Mapping[str, str] | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> Path:
    """Write the files below a folder into ``out / DATABASE``; one that is there is replaced once the new one is whole.

    Parameters
    ----------
    folder : Path
        As for ``megalens.open``: one output of TrainerMon.
    out : Path
        A folder that is there.
    micro_step : bool
        Whether the x axis counts micro-batches, one after the other over all steps; else it counts steps, and a target is one micro-batch.
    names : mapping, optional
        Parts of names and what they become, one after the other.
    tell : callable
        Takes sentences on what was left out.

    Raises
    ------
    MegalensError
        When there is nothing to read, or the file cannot be written.
    """
    trees = [tree for tree in find_trees(folder) if tree.layout == "trainermon"]
    if len(trees) != 1:
        what = "no output of TrainerMon" if not trees else f"{len(trees)} outputs of TrainerMon"
        raise MegalensError(f"{folder} must hold one output of TrainerMon, it holds {what}.")
    files = [file for file in trees[0].files() if file.kind in _METRICS]
    partial = out / f"{DATABASE}.{os.getpid()}.partial"
    try:
        with contextlib.closing(sqlite3.connect(partial)) as connection:
            _Writer(connection, micro_step, names or {}).write(
                ((file.kind, file.rank, _read(file.path, tell)) for file in files),
                _longest(file.path for file in files if micro_step),
            )
        os.replace(partial, out / DATABASE)
    except (OSError, sqlite3.Error) as error:
        raise MegalensError(f"{DATABASE} could not be written: {error}.") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return out / DATABASE


def _read(path: Path, tell: Callable[[str], object]) -> pa.Table:
    table, problems = read_csv_table(path)
    for problem in problems:
        tell(problem)
    return table


def _longest(paths: Iterator[Path]) -> dict[int, int]:
    """Return how many micro-batches each step has at most."""
    most: dict[int, int] = {}
    for path in paths:
        table, _ = read_csv_table(path)
        if "step" not in table.column_names:
            continue
        micro = table["micro_step"] if "micro_step" in table.column_names else pa.array([0] * table.num_rows)
        pairs = (
            pa.table({"step": table["step"], "micro": micro}).group_by("step").aggregate([("micro", "max")])
        )
        for step, last in zip(pairs["step"].to_pylist(), pairs["micro_max"].to_pylist(), strict=True):
            most[step] = max(most.get(step, 1), (last or 0) + 1)
    return most


class _Writer:
    def __init__(self, connection: sqlite3.Connection, micro_step: bool, names: Mapping[str, str]) -> None:
        self._connection, self._micro_step, self._names = connection, micro_step, names
        self._targets: dict[tuple[str, int, int], int] = {}
        self._tags: dict[tuple[str, str, int], int] = {}
        self._mapped: set[tuple[int, int]] = set()

    def write(self, files: Iterator[tuple[str, int, pa.Table]], longest: Mapping[int, int]) -> None:
        starts, total = {}, 0
        for step in sorted(longest):
            starts[step] = total
            total += longest[step]
        connection = self._connection
        connection.executescript(_TABLES)
        stats = ", ".join(f"{name} REAL" for name in _STATS)
        connection.execute(
            f"CREATE TABLE trend_data (rank INTEGER, step INTEGER, target_id INTEGER, metric_id INTEGER, {stats}, PRIMARY KEY (rank, step, target_id, metric_id))"
        )
        used: dict[str, list[str]] = {}
        ends: list[tuple[int, int, int]] = []
        places = ", ".join("?" * (4 + len(_STATS)))
        for kind, rank, table in files:
            if not table.num_rows or not {"name", "step"} <= {*table.column_names}:
                continue
            there = [name for name in _STATS if name in table.column_names]
            used[kind] = [name for name in _STATS if name in {*there, *used.get(kind, [])}]
            metric = self._metric(kind)
            rows = [*self._rows(rank, metric, table, starts)]
            ends.append((min(row[1] for row in rows), max(row[1] for row in rows), rank))
            connection.executemany(f"INSERT OR REPLACE INTO trend_data VALUES ({places})", rows)  # noqa: S608 - marks alone
        columns = ", ".join(f"{kind} TEXT" for kind in used)
        connection.execute(
            f"CREATE TABLE global_stats (min_step INTEGER, max_step INTEGER, max_rank INTEGER{', ' + columns if columns else ''})"
        )
        if ends:
            values = [min(e[0] for e in ends), max(e[1] for e in ends), max(e[2] for e in ends)]
            marks = ", ".join("?" * (3 + len(used)))
            connection.execute(
                f"INSERT INTO global_stats VALUES ({marks})",  # noqa: S608 - marks alone
                [*values, *(",".join(each) for each in used.values())],
            )
        connection.commit()

    def _rows(
        self, rank: int, metric: int, table: pa.Table, starts: Mapping[int, int]
    ) -> Iterator[list[Any]]:
        def whole(name: str) -> list[int]:
            here = name in table.column_names
            return pc.fill_null(table[name], 0).to_pylist() if here else [0] * table.num_rows

        stats = [
            _bounded(table[name].to_numpy()) if name in table.column_names else [None] * table.num_rows
            for name in _STATS
        ]
        lines = zip(
            table["name"].to_pylist(),
            whole("vpp_stage"),
            whole("step"),
            whole("micro_step"),
            *stats,
            strict=True,
        )
        for name, chunk, step, micro, *values in lines:
            target = self._target(name or "", chunk, 0 if self._micro_step else micro, metric)
            at = starts[step] + micro if self._micro_step else step
            yield [rank, at, target, metric, *values]

    def _metric(self, kind: str) -> int:
        found = _METRICS.index(kind) + 1
        self._connection.execute("INSERT OR IGNORE INTO monitoring_metrics VALUES (?, ?)", (found, kind))
        return found

    def _target(self, name: str, chunk: int, micro: int, metric: int) -> int:
        for old, new in self._names.items():
            name = name.replace(old, new)
        key = (name, chunk, micro)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = len(self._targets) + 1
            self._connection.execute("INSERT INTO monitoring_targets VALUES (?, ?, ?, ?)", (target, *key))
        if (target, metric) not in self._mapped:
            self._mapped.add((target, metric))
            for tag, category in _tags(name):
                number = self._tag(tag, category, metric)
                self._connection.execute(
                    "INSERT OR IGNORE INTO tag_target_mapping VALUES (?, ?)", (number, target)
                )
        return target

    def _tag(self, tag: str, category: str, metric: int) -> int:
        key = (tag, category, metric)
        if key not in self._tags:
            self._tags[key] = len(self._tags) + 1
            self._connection.execute(
                "INSERT INTO monitoring_tags VALUES (?, ?, ?, ?)", (self._tags[key], *key)
            )
        return self._tags[key]


def _tags(name: str) -> Iterator[tuple[str, str]]:
    """Give the parts of a name: a number goes with the part before it, as a layer."""
    parts = name.split(".")
    for at, part in enumerate(parts):
        if part.isdecimal() and at:
            yield f"{parts[at - 1]}.{part}", "layer"
        elif part and not (at + 1 < len(parts) and parts[at + 1].isdecimal()):
            yield part, "module"


def _bounded(values: np.ndarray) -> list[float | None]:
    """Return numbers within what the viewer takes: infinities stand just outside of it, NaN is nothing."""
    return [
        None
        if math.isnan(value)
        else math.copysign(_LARGEST + 1, value)
        if math.isinf(value)
        else max(-_LARGEST, min(_LARGEST, value))
        for value in values.astype(np.float64).tolist()
    ]
