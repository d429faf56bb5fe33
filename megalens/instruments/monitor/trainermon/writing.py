"""TrainerMon's output of a step: CSV files, TensorBoard events, or tables in memory.

The thread that writes TrainerMon's files: the training waits for neither the device nor the disk.
"""

from __future__ import annotations

import io
import math
import queue
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ....protocol import MOMENT_COLUMNS
from ....runs.exports.event_files import EventFile, needed_module
from ....tracer.errors import describe_error
from .call_rows import CallRows, StackedRows
from .config import STAMP, MonitorConfig
from .readings import FeatureRows
from .rules import together, values_of

if TYPE_CHECKING:
    from pandas import DataFrame


_MOST_LINES = 1_000_000
_NDIGITS = 6

COMMUNICATION = "cc"
"""The kind of lines of communication operations, named as ``all_reduce.pre_0``."""

_CELL, _WIDE = 8, 480
_MARGIN = 40


class TensorBoardWriter:
    """Writes numbers under TrainerMon's tags, such as ``0:layers.0.mlp.input:0/rank0/actv_norm``, into
    events.

    ``warn`` is called once when the file cannot be written; the training continues.
    """

    def __init__(self, folder: Path, rank: int, warn: Callable[[str], None]) -> None:
        need_tensorboard()
        self._folder, self._rank, self._warn = folder, rank, warn
        self._file = EventFile(folder)
        self._failed = False

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None:
        values = {
            f"{tag_of(line, kind, self._rank)}_{op}": value
            for line in lines
            for op, value in line.values.items()
        }
        self._guarded(lambda: self._file.scalars(step, values))

    def picture(self, step: int, tag: str, columns: Iterable[NDArray[np.float64]]) -> None:
        """Write the picture of a tensor's histograms; see :func:`histogram_picture`."""
        self._guarded(lambda: self._file.picture(step, tag, *histogram_picture(columns)))

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if not self._failed:
                self._failed = True
                self._warn(f"Files in {self._folder} cannot be written: {error.strerror or error}.")

    def close(self) -> None:
        self._guarded(self._file.close)


def histogram_picture(columns: Iterable[NDArray[np.float64]]) -> tuple[bytes, int, int]:
    """Return histograms next to each other as a PNG picture, with its width and height.

    ``columns`` are the counts ``[bins]`` of each step, oldest first. Black is no value, white the most; -1 is
    at the top.
    """
    images, draws = needed_module("PIL.Image"), needed_module("PIL.ImageDraw")
    counts = np.stack([*columns], axis=1)
    cell = max(1, min(_CELL, _WIDE // counts.shape[1]))
    part = counts / max(counts.max(), 1)
    # What is widely called the hot colour map: red rises first, then green, then blue.
    ends = np.array([[0.0, 0.365], [0.365, 0.746], [0.746, 1.0]])
    color = np.clip((part[..., None] - ends[:, 0]) / (ends[:, 1] - ends[:, 0]), 0, 1)
    cells = np.repeat(np.repeat((color * 255).astype(np.uint8), _CELL, axis=0), cell, axis=1)
    height, width = cells.shape[0] + 2 * _MARGIN, max(cells.shape[1], 120) + 2 * _MARGIN
    picture = images.new("RGB", (width, height), "white")
    picture.paste(images.fromarray(cells), (_MARGIN, _MARGIN))
    pen = draws.Draw(picture)
    pen.text((_MARGIN, 12), f"Total Step: {counts.shape[1]}", fill="black")
    pen.text((_MARGIN, height - 28), "Step", fill="black")
    bins = counts.shape[0]
    for at in (*range(0, bins, 5), bins - 1):
        edge = np.linspace(-1, 1, bins)[at]
        pen.text((4, _MARGIN + at * _CELL - 2), f"{edge:.2f}", fill="black")
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue(), width, height


def need_tensorboard() -> None:
    """Raise a MegalensError with what installs the packages that write numbers or draw pictures."""
    for name in ("tensorboardX.event_file_writer", "tensorboardX.proto", "PIL.Image"):
        needed_module(name)


_FILES = {COMMUNICATION: "other"}
# What a kind of file is called in tags.
_TASKS = {
    "grad_unreduced": "acc_grad",
    "grad_reduced": "post_grad",
    "other": "mg_direction",
    "attention_hook": "qkt",
    "linear_hook": "sr",
    "moe_router_weight_hook": "router_weight",
    "moe_router_logit_hook": "router_logit",
}


@dataclass(frozen=True)
class Line:
    """One line of a file.

    ``chunk`` is ``vpp_stage``; ``micro_step`` is None where the kind has no such column. ``values`` are by
    operation, in the order of the columns, or NaN. ``shape`` and ``dtype`` are ``[4, 5]`` and
    ``torch.float32``, or ``nan`` of what was no tensor. ``call`` is the index among all measurements of the
    step in time order, or -1.
    """

    chunk: int
    name: str
    micro_step: int | None
    values: Mapping[str, float]
    shape: str = ""
    dtype: str = ""
    call: int = -1


def tag_of(line: Line, kind: str, rank: int) -> str:
    """Return a line's tag, such as ``0:layers.0.mlp.input:0/rank0/actv`` or ``all_reduce/rank0/pre_0``."""
    if kind == COMMUNICATION:
        operation, _, where = line.name.partition(".")
        return f"{operation}/rank{rank}/{where}"
    micro = "" if line.micro_step is None else f":{line.micro_step}"
    return f"{line.chunk}:{line.name}{micro}/rank{rank}/{_TASKS.get(kind, kind)}"


class Writer(Protocol):
    """A destination of the lines of each step."""

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None: ...

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
    """Writes files of ``steps`` steps each, with ``ndigits`` decimals; new columns begin a new file.

    ``folder`` is made at the first line. ``warn`` is called once when files cannot be written; the training
    continues.
    """

    def __init__(self, folder: Path, ndigits: int, steps: int, warn: Callable[[str], None]) -> None:
        self._folder, self._ndigits, self._steps, self._warn = folder, ndigits, steps, warn
        self._columns: dict[Path, list[str]] = {}
        self._failed = False

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None:
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

    def close(self) -> None: ...


class ApiWriter:
    """Stores measurements in memory, for the script."""

    def __init__(self, most: int = 10_000_000) -> None:
        self._most, self._count = most, 0
        self._lines: dict[str, list[tuple[int, Sequence[Line]]]] = {}

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None:
        """Store the lines of one kind; beyond a limit its oldest steps are evicted."""
        stored = self._lines.setdefault(kind, [])
        stored.append((step, list(lines)))
        self._count += len(lines)
        while self._count > self._most and len(stored) > 1:
            self._count -= len(stored.pop(0)[1])

    def table(self, kind: str) -> DataFrame:
        """Return the lines of a kind in the columns of its files; empty where there are none."""
        import pandas

        frames = [_frame(step, lines) for step, lines in self._lines.get(kind, []) if lines]
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()

    def close(self) -> None: ...


_MOST_WAITING = 64
_MOST_COLUMNS = 480
_MOST_BEFORE_PICTURES = 8


@dataclass
class CollectedStep:
    """What the training thread passes to the writing one."""

    step: int
    kinds: dict[str, StackedRows | FeatureRows]
    ops: list[str]
    writer: Writer
    board: Writer | None
    """The writer that may draw pictures: that of the lines, or the one behind it."""
    updates: dict[str, Tensor]
    """The two histograms of each parameter, by the tag of their pictures without its last part."""


class WriterThread:
    """Writes collected steps in order. ``failed`` takes a sentence about a step that was not written."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._queue: queue.Queue[CollectedStep | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Start the thread, and return whether it did not run yet."""
        if self._thread is not None:
            return False
        self._thread = threading.Thread(target=self._run, name="megalens-trainermon", daemon=True)
        self._thread.start()
        return True

    def put(self, step: CollectedStep) -> None:
        """Queue a step; raises :class:`queue.Full` when the disk is too slow."""
        self._queue.put_nowait(step)

    def close(self) -> None:
        """Wait until all is written. Safe twice."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        columns: dict[str, deque[Any]] = {}
        drawn: dict[str, None] = {}
        while (step := self._queue.get()) is not None:
            try:
                for kind, rows in step.kinds.items():
                    lines = written_lines(rows, step.ops)
                    step.writer.write(kind, step.step, _joined(lines) if kind == COMMUNICATION else lines)
                self._draw(step, columns, drawn)
            except Exception as error:
                self._failed(f"Step {step.step} was not written: {describe_error(error)}")

    def _draw(self, step: CollectedStep, columns: dict[str, deque[Any]], drawn: dict[str, None]) -> None:
        for parameter, histograms in step.updates.items():
            for which, counts in zip(("update", "ratio"), histograms.tolist(), strict=True):
                tag = f"{parameter}/adam_{which}"
                columns.setdefault(tag, deque(maxlen=_MOST_COLUMNS)).append(np.asarray(counts))
                # In this order from now on: what was drawn longest ago comes first.
                drawn.setdefault(tag)
        for tag in [*drawn] if step.updates else ():
            # Numbers go before pictures; a later picture has the columns of those that are left out.
            if not isinstance(step.board, TensorBoardWriter) or self._queue.qsize() > _MOST_BEFORE_PICTURES:
                break
            if tag.rpartition("/")[0] in step.updates:
                step.board.picture(step.step, tag, columns[tag])
                drawn[tag] = drawn.pop(tag)


def stacked_rows(rows: CallRows | FeatureRows) -> StackedRows | FeatureRows:
    return StackedRows.of(rows) if isinstance(rows, CallRows) else rows


def written_lines(rows: StackedRows | FeatureRows, ops: Sequence[str]) -> list[Line]:
    """Return the written lines of rows. Waits for the device."""
    if isinstance(rows, FeatureRows):
        several = [numbers.tolist() for numbers in rows.numbers]
        return [
            Line(*label, dict(zip(rows.columns, numbers, strict=True)))
            for label, numbers in zip(rows.labels, several, strict=True)
        ]
    names = [op for op in ops if op not in ("shape", "dtype")]
    numbers = rows.numbers()
    lines = []
    for label, about, row, call in zip(rows.labels, rows.about, numbers, rows.calls, strict=True):
        if about is None or row is None:
            lines.append(Line(*label, dict.fromkeys(names, math.nan), "nan", "nan", call))
        else:
            shape, dtype = about
            values = values_of(dict(zip(MOMENT_COLUMNS, row, strict=True)), names, scalar=not shape)
            lines.append(Line(*label, values, str(list(shape)), str(dtype), call))
    return lines


def _joined(lines: Sequence[Line]) -> list[Line]:
    """Return one line for all of one name."""
    several: dict[str, list[Line]] = {}
    for line in lines:
        several.setdefault(line.name, []).append(line)
    return [
        Line(0, name, None, together([line.values for line in each]), "nan", "nan")
        for name, each in several.items()
    ]
