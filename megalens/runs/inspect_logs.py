"""Logs of Transformer Engine's debug features (nvidia-dlfw-inspect): what FP8 casts lose, over steps.

A file for each process, with a line for each number, of which four decimals are left. The same numbers in
TensorBoard's event files have all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..protocol import cast_of, cast_rows_of, counts_from_one, shown_text, stream_schema
from .errors import ClientError
from .foreign_files import ForeignFiles, ForeignRows, Progress, cached_recording, files_within, scalar_tables
from .run_folder import RunFolder

__all__ = ["INSPECT_LOGS", "streams_of"]

_VERSION = "inspect 1"
_FILE = re.compile(r"_globalrank-(\d{1,6})\.log$")
_FOLDER = "nvdlfw_inspect_statistics_logs"
_LINE = re.compile(
    rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} - [A-Z]+ - (\S.{0,999}?)\s+"
    rb"iteration=(\d{1,18})\s+value=(\S{1,40})\s*"
)
_LONGEST_LINE, _MOST_LINES, _MOST_FOLDERS = 1 << 12, 5_000_000, 1_000
_TOLD_EVERY = 1 << 14
_ROWS = 1 << 16


def holds_inspect_logs(path: Path, within: Path | None = None) -> bool:
    """Return whether a file is such a log, or a folder holds one, itself or one or two levels deeper."""
    return any(_is_log(file) for file in _files(path, within)[:5])


def inspect_recording(path: Path, progress: Progress | None = None, within: Path | None = None) -> RunFolder:
    """Return the recording of one job's logs; changed files are read anew.

    Raises ``ClientError`` for files that cannot be read or hold no number.
    """
    files = _files(path, within)
    return cached_recording(path, files, _VERSION, lambda: read_inspect_logs(files, progress))


INSPECT_LOGS = ForeignFiles(holds_inspect_logs, inspect_recording)


def _files(path: Path, within: Path | None) -> list[Path]:
    """Return the logs of statistics: of the same names, beside them, lie logs of messages."""
    for place in (path / _FOLDER, path):
        if found := files_within(place, _FILE, within):
            return found if path.is_dir() or _FILE.search(path.name) else []
    # A folder for each rank.
    folders = sorted(path.glob(f"*/{_FOLDER}"))[:_MOST_FOLDERS] if path.is_dir() else []
    return [file for folder in folders for file in files_within(folder, _FILE, within)]


def _is_log(file: Path) -> bool:
    try:
        with file.open("rb") as lines:
            return _LINE.fullmatch(lines.readline(_LONGEST_LINE)) is not None
    except OSError:
        return False


def read_inspect_logs(files: Sequence[Path], progress: Progress | None = None) -> ForeignRows:
    """Return the numbers of logs. Raises ``ClientError`` where there are none."""
    numbers: dict[tuple[int, int, str], tuple[float, float]] = {}
    left_out: Counter[str] = Counter()
    total, done = sum(file.stat().st_size for file in files), 0
    for file in files:
        named = _FILE.search(file.name)
        rank, shown = int(named[1]) if named else 0, shown_text(file.name, 200)
        with file.open("rb") as lines:
            for count, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE), b"")):
                if progress is not None and count % _TOLD_EVERY == 0:
                    progress(done + lines.tell(), total, f"reading {shown}")
                _take(line, rank, numbers, left_out)
        done += file.stat().st_size
    if not numbers:
        raise ClientError("The logs of nvidia-dlfw-inspect hold no numbers over steps.", code="unreadable")
    rows = sorted((step, rank, name, *told) for (step, rank, name), told in numbers.items())
    names = {name: at for at, name in enumerate(dict.fromkeys(row[2] for row in rows))}
    columns = [
        np.array([row[0] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.float64),
        np.array([row[1] for row in rows], np.int32),
        np.array([names[row[2]] for row in rows], np.int32),
        np.array([row[4] for row in rows], np.float64),
    ]
    origin = {"kind": "trace", "name": "nvidia-dlfw-inspect", "steps": "counted"}
    problems = [f"{count} {what}" for what, count in sorted(left_out.items())]
    return ForeignRows(origin, streams_of(columns, list(names)), problems)


_LOST = (
    "numbers are left out: printed as 0.0000, they may be anything below 0.00005. TensorBoard's files of the "
    "same training have them whole."
)


def _take(
    line: bytes,
    rank: int,
    numbers: dict[tuple[int, int, str], tuple[float, float]],
    left_out: Counter[str],
) -> None:
    found = _LINE.fullmatch(line)
    try:
        time, name, step, value = (part.decode() for part in found.groups()) if found else ("", "", "", "")
        told = datetime.strptime(time, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp(), float(value)
    except ValueError:
        left_out["lines that are cut off or no numbers are left out."] += 1
        return
    if value.lstrip("-") == "0.0000" and not name.endswith(("s%", "s%_columnwise")):
        left_out[_LOST] += 1
    elif len(numbers) >= _MOST_LINES:
        left_out[f"numbers beyond {_MOST_LINES} are left out."] += 1
    else:
        numbers[int(step), rank, name] = told


def streams_of(columns: Sequence[np.ndarray], names: Sequence[str]) -> dict[str, Iterable[pa.Table]]:
    """Return rows of ``moments`` of what casts lose, and all other numbers as ``scalars``.

    ``columns`` are by step: step, time in s, rank, number of the name, value.
    """
    casts = np.array([cast_of(name) is not None for name in names], bool)
    of = casts[columns[3]] if len(names) else np.zeros(0, bool)
    found: dict[str, Iterable[pa.Table]] = {"scalars": scalar_tables([each[~of] for each in columns], names)}
    if of.any():
        found["moments"] = _moments([each[of] for each in columns], names)
    return found


def _moments(columns: Sequence[np.ndarray], names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield rows of ``moments``; what several ranks say alike, as those of one group do, comes once."""
    schema = stream_schema("moments")
    from_one = counts_from_one(found[1] for name in names if (found := cast_of(name)) is not None)
    rows: list[dict[str, Any]] = []
    numbers = zip(*(columns[at].tolist() for at in (0, 2, 3, 4)), strict=True)
    for step, here in groupby(numbers, key=itemgetter(0)):
        said: set[tuple[Any, ...]] = set()
        for rank, own in groupby(sorted(here, key=itemgetter(1)), key=itemgetter(1)):
            given = {names[name]: value for _, _, name, value in own}
            for (stat, tensor), row in cast_rows_of(given, from_one).items():
                key = (stat, tensor, *map(repr, row.values()))
                if key not in said:
                    said.add(key)
                    rows.append({
                        "step": step, "samples": -1, "stat": stat, "name": tensor, "rank": rank, "stage": -1,
                        **row, "rounding": 0.0, "gradient_stage": "", "loss_scale": 1.0,
                    })  # fmt: skip
        if len(rows) >= _ROWS:
            yield pa.Table.from_pylist(rows, schema=schema)
            rows = []
    if rows:
        yield pa.Table.from_pylist(rows, schema=schema)
