"""What TrainerMon writes of a step: CSV files, or tables in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from .config import STAMP, MonitorConfig

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["COMMUNICATION", "ApiWriter", "CsvWriter", "Line", "Writer", "rank_folder", "writer_of"]

_MOST_LINES = 1_000_000
_NDIGITS = 6

COMMUNICATION = "cc"
"""The kind of lines of communication operations, named as ``all_reduce.pre_0``."""

_FILES = {COMMUNICATION: "other"}


@dataclass(frozen=True)
class Line:
    """One line of a file.

    Attributes
    ----------
    chunk : int
        ``vpp_stage``.
    name : str
        As in the column.
    micro_step : int or None
        None where the kind has no such column.
    values : mapping
        By operation, in the order of the columns; NaN where there is none.
    shape, dtype : str
        ``[4, 5]`` and ``torch.float32``; ``nan`` of what was no tensor.
    call : int
        Place among all that was measured in the step, as it happened; -1 where it has none.
    """

    chunk: int
    name: str
    micro_step: int | None
    values: Mapping[str, float]
    shape: str = ""
    dtype: str = ""
    call: int = -1


class Writer(Protocol):
    """Takes the lines of each step."""

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None:
        """Write the lines of one kind."""

    def close(self) -> None:
        """Finish. Safe twice."""


def rank_folder(root: Path, rank: int, now: datetime) -> Path:
    """Return a new folder's path, such as ``Nov21_12-20-04-rank0-82ac1f33``."""
    return root / f"{now.strftime(STAMP)}-rank{rank}-{uuid4().hex[:8]}"


def writer_of(
    config: MonitorConfig, folder: Path, rank: int, warn: Callable[[str], None] = warnings.warn
) -> Writer:
    """Return the writer of a configuration's format."""
    if config.format == "api":
        return ApiWriter()
    if config.format == "tensorboard":
        from .event_files import TensorBoardWriter

        return TensorBoardWriter(folder, rank, warn)
    return CsvWriter(folder, config.ndigits or _NDIGITS, config.step_count_per_record, warn)


def _frame(step: int, lines: Sequence[Line]) -> DataFrame:
    import pandas

    first = lines[0]
    columns: dict[str, list[object]] = {
        "vpp_stage": [line.chunk for line in lines],
        "name": [line.name for line in lines],
        "step": [step] * len(lines),
    }
    if first.micro_step is not None:
        columns["micro_step"] = [line.micro_step for line in lines]
    columns |= {op: [line.values[op] for line in lines] for op in first.values}
    if first.shape:
        columns |= {"shape": [line.shape for line in lines], "dtype": [line.dtype for line in lines]}
    return pandas.DataFrame(columns)


class CsvWriter:
    """Writes files of so many steps each. A step whose columns are others than its file's begins a file of its own.

    Parameters
    ----------
    folder : Path
        Of the rank; made when the first line is written.
    ndigits : int
        Decimals.
    steps : int
        How many steps a file has.
    warn : callable
        Told once that files cannot be written; the training goes on.
    """

    def __init__(self, folder: Path, ndigits: int, steps: int, warn: Callable[[str], None]) -> None:
        self._folder, self._ndigits, self._steps, self._warn = folder, ndigits, steps, warn
        self._columns: dict[Path, list[str]] = {}
        self._failed = False

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None:
        """Write the lines of one kind."""
        first = step // self._steps * self._steps
        stem = f"{_FILES.get(kind, kind)}_{first}-{first + self._steps - 1}"
        for part, begin in enumerate(range(0, len(lines), _MOST_LINES)):
            frame = _frame(step, lines[begin : begin + _MOST_LINES]).round(self._ndigits)
            try:
                self._append(stem if part == 0 else f"{stem}_part_{part}", frame)
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    self._warn(f"Files in {self._folder} cannot be written: {error.strerror or error}.")
                return

    def _append(self, stem: str, frame: DataFrame) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        columns = list(frame.columns)
        for number in range(1000):
            path = self._folder / f"{stem}{f'_part_{1000 + number}' if number else ''}.csv"
            if path not in self._columns and path.exists():
                with path.open(encoding="utf-8") as file:
                    self._columns[path] = file.readline().rstrip("\n").split(",")
            if self._columns.setdefault(path, columns) == columns:
                break
        frame.to_csv(path, mode="a", header=not path.exists(), index=False, na_rep="nan", lineterminator="\n")

    def close(self) -> None:
        """Nothing is held open."""


class ApiWriter:
    """Keeps what was measured in memory, for the script."""

    def __init__(self, most: int = 10_000_000) -> None:
        self._most, self._count = most, 0
        self._lines: dict[str, list[tuple[int, Sequence[Line]]]] = {}

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None:
        """Keep the lines of one kind; of more than so many the oldest steps of it are given up."""
        kept = self._lines.setdefault(kind, [])
        kept.append((step, list(lines)))
        self._count += len(lines)
        while self._count > self._most and len(kept) > 1:
            self._count -= len(kept.pop(0)[1])

    def table(self, kind: str) -> DataFrame:
        """Return the lines of a kind in the columns of its files; empty where there are none."""
        import pandas

        frames = [_frame(step, lines) for step, lines in self._lines.get(kind, []) if lines]
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()

    def close(self) -> None:
        """Nothing: what was kept can still be read."""
