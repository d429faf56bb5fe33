"""TrainerMon's CSV files as TensorBoard events by rank and kind, and as SQLite for msProbe's trend viewer."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pandas import DataFrame

from ....protocol import MegalensError, is_whole
from ....protocol.outside import parse_json
from ....runs.exports.event_files import EventFile
from ....runs.moments import find_trees
from ....runs.moments.trainermon.files import KINDS, read_csv_table
from .config import STAMP, ConfigValueError, read_time

_OPS = ("norm", "min", "max", "zeros", "nans", "id", "mean")
_MOST_PROCESSES = 128
_AT_ONCE = 1000
_EVENTS = "events.out.tfevents.*"
_KEY = {"vpp_stage": pa.int64(), "name": pa.utf8(), "step": pa.int64(), "micro_step": pa.int64()}
_Report = Callable[[str], object]
_Task = tuple[Path, Sequence[Path]]

DATABASE = "monitor_data.trend.db"

_METRICS = (*KINDS, "other")
_LARGEST = 1e9
_TABLES = """
CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY, target_name TEXT NOT NULL, \
vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL, UNIQUE (target_name, vpp_stage, micro_step));
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY, metric_name TEXT NOT NULL UNIQUE);
CREATE TABLE monitoring_tags (tag_id INTEGER PRIMARY KEY, tag_name TEXT NOT NULL, category TEXT NOT NULL, \
metric_id INTEGER NOT NULL, UNIQUE (tag_name, category, metric_id));
CREATE TABLE tag_target_mapping (tag_id INTEGER NOT NULL, target_id INTEGER NOT NULL, \
PRIMARY KEY (tag_id, target_id));
"""


def csv2tensorboard_by_step(
    monitor_path: str | Path,
    time_start: str | None = None,
    time_end: str | None = None,
    process_num: int = 1,
    data_type_list: Sequence[str] | None = None,
    output_dirpath: str | Path | None = None,
    *,
    tell: _Report = print,
) -> Path:
    """Write TrainerMon's CSV files as numbers over steps, and return the folder:
    ``rank0/actv/events.out.tfevents…``.

    Tags are ``vp{chunk}:{name}[:micro{n}]/{op}``. Where two files have the same step of a tag, the line of
    the later folder counts, and that is reported.

    Parameters
    ----------
    monitor_path : path
        The output folder, with one folder for each rank and start.
    time_start, time_end : str, optional
        Folders from this time to that, both with it, such as ``Nov21_12-20-04``. None: all.
    process_num : int
        1 to 128 processes.
    data_type_list : list of str, optional
        Which kinds; None: all eight.
    output_dirpath : path, optional
        None: ``{now}-csv2tensorboard_by_step`` below ``monitor_path``.
    tell : callable
        Takes sentences on what was left out.

    Raises
    ------
    ConfigValueError
        When an argument is wrong.
    MegalensError
        When there is nothing to read, the packages that write are not installed, or a file cannot be written.
    """
    if not is_whole(process_num, 1) or process_num > _MOST_PROCESSES:
        raise ConfigValueError(f"process_num must be 1 to {_MOST_PROCESSES}, got {process_num!r:.50}.")
    kinds = [*KINDS] if data_type_list is None else data_type_list
    if not isinstance(kinds, (list, tuple)) or not all(
        isinstance(kind, str) and kind in KINDS for kind in kinds
    ):
        raise ConfigValueError(
            f"data_type_list must be a list of any of {', '.join(KINDS)}, got {data_type_list!r:.200}."
        )
    given = {"time_start": time_start, "time_end": time_end}
    first, last = (None if text is None else read_time(text, name) for name, text in given.items())
    if first is not None and last is not None and first > last:
        raise ConfigValueError(f"time_start must not be after time_end, got {time_start} and {time_end}.")
    parts = _parts(Path(monitor_path), kinds, first, last)
    if not parts:
        raise MegalensError(f"{monitor_path} holds no files of TrainerMon of these kinds and times.")
    name = f"{datetime.now().strftime(STAMP)}-csv2tensorboard_by_step"
    out = Path(monitor_path) / name if output_dirpath is None else Path(output_dirpath)
    # Checked before processes start.
    EventFile(out)
    tasks = [(out / f"rank{rank}" / kind, files) for (rank, kind), files in parts.items()]
    for problem in _mapped(process_num, tasks):
        tell(problem)
    return out


def _parts(
    folder: Path, kinds: Sequence[str], first: datetime | None, last: datetime | None
) -> Mapping[tuple[int, str], list[Path]]:
    """Return the files of each rank and kind, those of earlier folders first."""
    found: dict[tuple[int, str], list[tuple[datetime, str, Path]]] = {}
    trees = [tree for tree in find_trees(folder) if tree.layout == "trainermon"]
    if len(trees) > 1:
        raise MegalensError(f"{folder} must hold one output of TrainerMon, it holds {len(trees)}.")
    for file in (file for tree in trees for file in tree.files()):
        try:
            begun = read_time(file.path.parent.name.partition("-rank")[0], "folder")
        except MegalensError:
            continue
        inside = (first is None or first <= begun) and (last is None or begun <= last)
        if file.kind in kinds and inside:
            found.setdefault((file.rank, file.kind), []).append((begun, file.path.name, file.path))
    return {key: [path for *_, path in sorted(files)] for key, files in sorted(found.items())}


def _mapped(processes: int, tasks: Sequence[_Task]) -> list[str]:
    if processes == 1 or len(tasks) == 1:
        return [problem for folder, files in tasks for problem in _write(folder, files)]
    count = min(processes, len(tasks))
    with ThreadPoolExecutor(count) as pool:
        shares = pool.map(_in_process, [tasks[at::count] for at in range(count)])
        return [problem for problems in shares for problem in problems]


def _in_process(tasks: Sequence[_Task]) -> list[str]:
    """Write these in a process of its own program: ``multiprocessing`` may run a script twice."""
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import write_tasks; write_tasks()"],
        input=json.dumps([[str(folder), [*map(str, files)]] for folder, files in tasks]).encode(),
        capture_output=True,
    )
    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise MegalensError(f"A process that writes files of TensorBoard failed: {message}")
    answer = parse_json(done.stdout)
    if answer["error"]:
        raise MegalensError(answer["error"])
    problems: list[str] = answer["problems"]
    return problems


def write_tasks() -> None:
    """Write the tasks of standard input, and print what was left out."""
    answer: dict[str, Any] = {"problems": [], "error": ""}
    try:
        for folder, files in parse_json(sys.stdin.buffer.read()):
            answer["problems"] += _write(Path(folder), [Path(file) for file in files])
    except MegalensError as error:
        answer["error"] = str(error)
    print(json.dumps(answer))


def _write(folder: Path, files: Sequence[Path]) -> list[str]:
    """Write one rank's files of one kind; return sentences about what was left out."""
    rows, problems = _rows(files)
    old = {*folder.glob(_EVENTS)}
    file = EventFile(folder)
    try:
        for begin, end in _stretches(rows["step"].to_numpy()):
            values: dict[str, float] = {}
            for row in rows.slice(begin, end - begin).to_pylist():
                micro = "" if row["micro_step"] is None else f":micro{row['micro_step']}"
                tag = f"vp{row['vpp_stage'] or 0}:{row['name']}{micro}"
                values |= {f"{tag}/{op}": row[op] for op in _OPS if row.get(op) is not None}
            file.scalars(row["step"], values)
        file.close()
        # Only now: the old file stays until the new one is complete.
        for each in old:
            each.unlink(missing_ok=True)
    except OSError as error:
        for each in {*folder.glob(_EVENTS)} - old:
            each.unlink(missing_ok=True)
        raise MegalensError(f"Files in {folder} cannot be written: {error.strerror or error}.") from error
    return problems


def _rows(files: Sequence[Path]) -> tuple[pa.Table, list[str]]:
    """Return the rows of all files by step, the last one of each key, and what was left out."""
    tables, problems = [pa.schema(_KEY).empty_table()], []
    for path in files:
        table, wrong = read_csv_table(path)
        problems += wrong
        usable = {"name", "step"} <= {*table.column_names}
        there = [name for name in (*_KEY, *_OPS) if usable and name in table.column_names]
        tables.append(table.select(there) if usable else tables[0])
    rows = pa.concat_tables(tables, promote_options="default")
    lines = DataFrame(
        {
            "step": rows["step"].to_numpy(),
            "name": rows["name"].dictionary_encode().combine_chunks().indices.to_numpy(),
            "vpp_stage": pc.fill_null(rows["vpp_stage"], 0).to_numpy(),
            "micro_step": pc.fill_null(rows["micro_step"], -1).to_numpy(),
        }
    )
    of_file = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    problems += [
        f"{files[at - 1].parent.name}/{files[at - 1].name} has steps that were there before: the later ones "
        "count."
        for at in np.unique(of_file[lines.duplicated().to_numpy()])
    ]
    last = lines[~lines.duplicated(keep="last")].sort_values("step", kind="stable").index.to_numpy()
    return rows.take(pa.array(last)), problems


def _stretches(steps: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each step's rows, many rows in parts."""
    bounds = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    for begin, end in pairwise(bounds):
        for first in range(begin, end, _AT_ONCE):
            yield first, min(first + _AT_ONCE, end)


def write_database(
    folder: Path,
    out: Path,
    *,
    micro_step: bool = True,
    names: Mapping[str, str] | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> Path:
    """Write the files of one output of TrainerMon into ``out / DATABASE``, replacing it at the end.

    With ``micro_step`` the x axis counts micro-batches over all steps; else it counts steps, and a target is
    one micro-batch. ``names`` maps parts of names to replacements, in order; ``tell`` takes sentences about
    what was left out. Raises ``MegalensError`` when there is nothing to read, or the file cannot be written.
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
    """Return the most micro-batches of each step."""
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
        steps = sorted(longest)
        starts = dict(zip(steps, accumulate((longest[step] for step in steps), initial=0), strict=False))
        connection = self._connection
        connection.executescript(_TABLES)
        stats = ", ".join(f"{name} REAL" for name in _OPS)
        connection.execute(
            "CREATE TABLE trend_data (rank INTEGER, step INTEGER, target_id INTEGER, metric_id INTEGER, "
            f"{stats}, PRIMARY KEY (rank, step, target_id, metric_id))"
        )
        used: dict[str, list[str]] = {}
        ends: list[tuple[int, int, int]] = []
        marks = ", ".join("?" * (4 + len(_OPS)))
        for kind, rank, table in files:
            if not table.num_rows or not {"name", "step"} <= {*table.column_names}:
                continue
            there = [name for name in _OPS if name in table.column_names]
            used[kind] = [name for name in _OPS if name in {*there, *used.get(kind, [])}]
            metric = _METRICS.index(kind) + 1
            connection.execute("INSERT OR IGNORE INTO monitoring_metrics VALUES (?, ?)", (metric, kind))
            rows = [*self._rows(rank, metric, table, starts)]
            ends.append((min(row[1] for row in rows), max(row[1] for row in rows), rank))
            connection.executemany(f"INSERT OR REPLACE INTO trend_data VALUES ({marks})", rows)  # noqa: S608
        columns = ", ".join(f"{kind} TEXT" for kind in used)
        connection.execute(
            "CREATE TABLE global_stats (min_step INTEGER, max_step INTEGER, max_rank "
            f"INTEGER{', ' + columns if columns else ''})"
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
        def integers(name: str) -> list[int]:
            here = name in table.column_names
            return pc.fill_null(table[name], 0).to_pylist() if here else [0] * table.num_rows

        stats = [
            _bounded(table[name].to_numpy()) if name in table.column_names else [None] * table.num_rows
            for name in _OPS
        ]
        lines = zip(
            table["name"].to_pylist(),
            integers("vpp_stage"),
            integers("step"),
            integers("micro_step"),
            *stats,
            strict=True,
        )
        for name, chunk, step, micro, *values in lines:
            target = self._target(name or "", chunk, 0 if self._micro_step else micro, metric)
            at = starts[step] + micro if self._micro_step else step
            yield [rank, at, target, metric, *values]

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
            number = self._tags[key] = len(self._tags) + 1
            self._connection.execute("INSERT INTO monitoring_tags VALUES (?, ?, ?, ?)", (number, *key))
        return self._tags[key]


def _tags(name: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a name: a number goes with the part before it, as a layer."""
    parts = name.split(".")
    for at, part in enumerate(parts):
        if part.isdecimal() and at:
            yield f"{parts[at - 1]}.{part}", "layer"
        elif part and not (at + 1 < len(parts) and parts[at + 1].isdecimal()):
            yield part, "module"


def _bounded(values: np.ndarray) -> list[float | None]:
    """Return numbers in the viewer's range: infinities just outside of it, NaN as nothing."""
    values = values.astype(np.float64)
    inside = np.clip(values, -_LARGEST, _LARGEST)
    bounded = np.where(np.isinf(values), np.copysign(_LARGEST + 1, values), inside)
    return [value if value == value else None for value in bounded.tolist()]
