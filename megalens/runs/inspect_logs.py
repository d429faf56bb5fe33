"""Logs of Transformer Engine's debug features (nvidia-dlfw-inspect): what FP8 casts lose, over steps.

A file for each process, with a line for each number, of which four decimals are left. The same numbers in
TensorBoard's event files have all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..protocol import shown_text
from .errors import ClientError
from .foreign_files import ForeignRows, Progress, files_within, foreign_files
from .foreign_numbers import Numbers

__all__ = ["INSPECT_LOGS"]

_FILE = re.compile(r"_globalrank-(\d{1,6})\.log$")
_FOLDER = "nvdlfw_inspect_statistics_logs"
_LINE = re.compile(
    rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} - [A-Z]+ - (\S.{0,999}?)\s+"
    rb"iteration=(\d{1,18})\s+value=(\S{1,40})\s*"
)
_LONGEST_LINE, _MOST_FOLDERS = 1 << 12, 1_000
_TOLD_EVERY = 1 << 14
_LOST = (
    "numbers are left out: printed as 0.0000, they may be anything below 0.00005. TensorBoard's files of the "
    "same training have them whole."
)


def _files(path: Path, within: Path | None = None) -> list[Path]:
    """Return the logs of statistics, in a folder or one or two levels deeper: of the same names, beside them,
    lie logs of messages.
    """
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


def read_inspect_logs(path: Path, files: Sequence[Path], progress: Progress | None = None) -> ForeignRows:
    """Return the numbers of one job's logs. Raises ``ClientError`` where there are none."""
    numbers = Numbers()
    total, done = sum(file.stat().st_size for file in files), 0
    for file in files:
        named = _FILE.search(file.name)
        rank, shown = int(named[1]) if named else 0, shown_text(file.name, 200)
        with file.open("rb") as lines:
            for count, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE), b"")):
                if progress is not None and count % _TOLD_EVERY == 0:
                    progress(done + lines.tell(), total, f"reading {shown}")
                _take(line, rank, numbers)
        done += file.stat().st_size
    problems = numbers.problems()
    if lost := numbers.left_out.pop(_LOST, 0):
        problems = [f"{lost} {_LOST}", *numbers.problems()]
    if not len(numbers):
        raise ClientError("The logs of nvidia-dlfw-inspect hold no numbers over steps.", code="unreadable")
    origin = {"kind": "trace", "name": "nvidia-dlfw-inspect", "steps": "counted"}
    return ForeignRows(origin, numbers.streams(), problems)


INSPECT_LOGS = foreign_files("inspect 1", _files, _is_log, read_inspect_logs, 5)


def _take(line: bytes, rank: int, numbers: Numbers) -> None:
    found = _LINE.fullmatch(line)
    try:
        time, name, step, value = (part.decode() for part in found.groups()) if found else ("", "", "", "")
        at = datetime.strptime(time, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
        figure = float(value)
    except ValueError:
        numbers.left_out["lines that are cut off or no numbers"] += 1
        return
    if value.lstrip("-") == "0.0000" and not name.endswith(("s%", "s%_columnwise")):
        numbers.left_out[_LOST] += 1
    else:
        numbers.add(int(step), at, rank, name, figure)
