"""Files of TensorBoard's events: numbers and pictures, written through tensorboardX."""

from __future__ import annotations

import importlib
import io
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from ....protocol import MegalensError
from .anomaly_writer import tag_of
from .writing import Line

__all__ = ["EventFile", "TensorBoardWriter", "histogram_picture", "need_tensorboard"]

_CELL, _WIDE = 8, 480
_MARGIN = 40
_FLUSH_SECONDS = 2.0


class EventFile:
    """One file of events, made when the first is written.

    Parameters
    ----------
    folder : Path
        Where; made with it.

    Raises
    ------
    MegalensError
        Where the packages are not installed, with what installs them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._events, self._summaries = (
            _module("tensorboardX.event_file_writer"),
            _module("tensorboardX.proto"),
        )
        self._writer: Any = None
        self._flushed = time.monotonic()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write the numbers of a step, by tag; an OSError is the caller's."""
        value = self._summaries.summary_pb2.Summary.Value
        self._write(step, [value(tag=tag, simple_value=number) for tag, number in values.items()])

    def picture(self, step: int, tag: str, png: bytes, width: int, height: int) -> None:
        """Write a PNG picture."""
        summary = self._summaries.summary_pb2.Summary
        image = summary.Image(width=width, height=height, colorspace=3, encoded_image_string=png)
        self._write(step, [summary.Value(tag=tag, image=image)])

    def _write(self, step: int, values: Sequence[Any]) -> None:
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Files of one second have one name otherwise, and the second would take the place of the first.
            self._writer = self._events.EventsWriter(str(self._folder / "events"), f".{uuid4().hex[:8]}")
        summary = self._summaries.summary_pb2.Summary(value=values)
        event = self._summaries.event_pb2.Event(wall_time=time.time(), step=step, summary=summary)
        try:
            self._writer.write_event(event)
            if time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._flushed = time.monotonic()
                self._writer.flush()
        except OSError:
            # Nothing after half an event can be read: what follows is a file of its own.
            writer, self._writer = self._writer, None
            with suppress(OSError):
                writer.close()
            raise

    def close(self) -> None:
        """Finish the file. Safe twice."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class TensorBoardWriter:
    """Writes what a step measured as numbers under TrainerMon's tags, such as ``0:layers.0.mlp.input:0/rank0/actv_norm``, into one file of events.

    Parameters
    ----------
    folder : Path
        Of the rank.
    rank : int
        Of this process.
    warn : callable
        Told once that the file cannot be written; the training goes on.
    """

    def __init__(self, folder: Path, rank: int, warn: Callable[[str], None]) -> None:
        need_tensorboard()
        self._folder, self._rank, self._warn = folder, rank, warn
        self._file = EventFile(folder)
        self._failed = False

    def write(self, kind: str, step: int, lines: Sequence[Line]) -> None:
        """Write the lines of one kind."""
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
        """Finish the file."""
        self._guarded(self._file.close)


def histogram_picture(columns: Iterable[NDArray[np.float64]]) -> tuple[bytes, int, int]:
    """Return histograms beside each other as a PNG picture, with its width and height: black is no value, white the most; -1 is at the top.

    Parameters
    ----------
    columns : sequence of ndarray
        Counts ``[bins]`` of each step, oldest first.
    """
    images, draws = _module("PIL.Image"), _module("PIL.ImageDraw")
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
    """Raise a MegalensError with what installs them where packages are missing that write numbers or draw pictures."""
    for name in ("tensorboardX.event_file_writer", "tensorboardX.proto", "PIL.Image"):
        _module(name)


def _module(name: str) -> Any:
    try:
        if name == "tensorboardX.proto":
            importlib.import_module("tensorboardX.proto.event_pb2")
        return importlib.import_module(name)
    except ImportError as error:
        raise MegalensError(
            f"Files of TensorBoard need {name.partition('.')[0].replace('PIL', 'pillow')}: pip install 'megalens[tensorboard]'."
        ) from error
