"""TrainerMon's CSV files as TensorBoard's events: one file for each rank and kind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pandas import DataFrame

from ....protocol import MegalensError, is_whole
from ....protocol.outside import parse_json
from ....runs.moments import find_trees
from ....runs.moments.trainermon.files import KINDS, read_csv_table
from .config import STAMP, ConfigValueError, read_time
from .event_files import EventFile

__all__ = ["csv2tensorboard_by_step", "write_tasks"]

_OPS = ("norm", "min", "max", "zeros", "nans", "id", "mean")
_MOST_PROCESSES = 128
_AT_ONCE = 1000
_EVENTS = "events.out.tfevents.*"
_PLACE = {"vpp_stage": pa.int64(), "name": pa.utf8(), "step": pa.int64(), "micro_step": pa.int64()}
_Told = Callable[[str], object]
_Task = tuple[Path, Sequence[Path]]


def csv2tensorboard_by_step(
    monitor_path: str | Path,
    time_start: str | None = None,
    time_end: str | None = None,
    process_num: int = 1,
    data_type_list: Sequence[str] | None = None,
    output_dirpath: str | Path | None = None,
    *,
    tell: _Told = print,
) -> Path:
    """Write what TrainerMon wrote as CSV files as numbers over steps, and return the folder: ``rank0/actv/events.out.tfevents…`` and so on.

    Tags are ``vp{chunk}:{name}[:micro{n}]/{op}``. Where two files have the same step of a tag, the line of the later folder counts, and it is told.

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
    # Here, so that what is missing is said before processes start.
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
    """Write these in a process of its own program: one of ``multiprocessing`` would run a script that has no ``if __name__ == "__main__"`` a second time."""
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import write_tasks; write_tasks()"],
        input=json.dumps([[str(folder), [*map(str, files)]] for folder, files in tasks]).encode(),
        capture_output=True,
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise MegalensError(f"A process that writes files of TensorBoard failed: {said}")
    answer = parse_json(done.stdout)
    if answer["error"]:
        raise MegalensError(answer["error"])
    problems: list[str] = answer["problems"]
    return problems


def write_tasks() -> None:
    """Write what standard input says, and say on standard output what was left out."""
    answer: dict[str, Any] = {"problems": [], "error": ""}
    try:
        for folder, files in parse_json(sys.stdin.buffer.read()):
            answer["problems"] += _write(Path(folder), [Path(file) for file in files])
    except MegalensError as error:
        answer["error"] = str(error)
    print(json.dumps(answer))


def _write(folder: Path, files: Sequence[Path]) -> list[str]:
    """Write one rank's files of one kind; what was left out, in sentences."""
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
        # Only now: what was there stays until the new one is whole.
        for each in old:
            each.unlink(missing_ok=True)
    except OSError as error:
        for each in {*folder.glob(_EVENTS)} - old:
            each.unlink(missing_ok=True)
        raise MegalensError(f"Files in {folder} cannot be written: {error.strerror or error}.") from error
    return problems


def _rows(files: Sequence[Path]) -> tuple[pa.Table, list[str]]:
    """Return the rows of all files by step, the last one of each place; and what was left out."""
    tables, problems = [pa.schema(_PLACE).empty_table()], []
    for path in files:
        table, wrong = read_csv_table(path)
        problems += wrong
        usable = {"name", "step"} <= {*table.column_names}
        there = [name for name in (*_PLACE, *_OPS) if usable and name in table.column_names]
        tables.append(table.select(there) if usable else tables[0])
    rows = pa.concat_tables(tables, promote_options="default")
    places = DataFrame(
        {
            "step": rows["step"].to_numpy(),
            "name": rows["name"].dictionary_encode().combine_chunks().indices.to_numpy(),
            "vpp_stage": pc.fill_null(rows["vpp_stage"], 0).to_numpy(),
            "micro_step": pc.fill_null(rows["micro_step"], -1).to_numpy(),
        }
    )
    of_file = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    problems += [
        f"{files[at - 1].parent.name}/{files[at - 1].name} has steps that were there before: the later ones count."
        for at in np.unique(of_file[places.duplicated().to_numpy()])
    ]
    kept = places[~places.duplicated(keep="last")].sort_values("step", kind="stable").index.to_numpy()
    return rows.take(pa.array(kept)), problems


def _stretches(steps: np.ndarray) -> Iterator[tuple[int, int]]:
    """Give begin and end of each step's rows, of many rows in parts."""
    bounds = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    for begin, end in pairwise(bounds):
        for first in range(begin, end, _AT_ONCE):
            yield first, min(first + _AT_ONCE, end)
