"""The thread that writes TrainerMon's files: the training waits for neither the device nor the disk."""

from __future__ import annotations

import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ....protocol import MOMENT_COLUMNS
from ....tracer.errors import describe_error
from .call_rows import CallRows, StackedRows
from .readings import FeatureRows
from .rules import together, values_of
from .writing import COMMUNICATION, Line, TensorBoardWriter, Writer

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
