"""Numbers over steps as TensorBoard's files of events."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from ...protocol import MOMENT_COLUMNS, Histogram, read_moments
from ..errors import ClientError
from .export import Export, Format

_FLUSH_SECONDS = 2.0
_STATISTICS = ("mean", "std", "rms", "min", "max", "skewness", "kurtosis", "nan_count", "inf_count")


class EventFile:
    """One TensorBoard event file, created with its folder at the first write.

    Raises ``ClientError`` where the packages are not installed, with what installs them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._events, self._summaries = (
            needed_module("tensorboardX.event_file_writer"),
            needed_module("tensorboardX.proto"),
        )
        self._writer: Any = None
        self._flushed = time.monotonic()

    def scalars(self, step: int, values: Mapping[str, float], wall_time: float | None = None) -> None:
        """Write the numbers of a step, by tag, at ``wall_time`` or now; an OSError is the caller's."""
        value = self._summaries.summary_pb2.Summary.Value
        self._write(step, [value(tag=tag, simple_value=number) for tag, number in values.items()], wall_time)

    def histograms(self, step: int, values: Mapping[str, Any], wall_time: float | None = None) -> None:
        """Write the histograms of a step, by tag; each the fields of a ``HistogramProto``."""
        summary = self._summaries.summary_pb2
        written = [
            summary.Summary.Value(tag=tag, histo=summary.HistogramProto(**fields))
            for tag, fields in values.items()
        ]
        self._write(step, written, wall_time)

    def picture(self, step: int, tag: str, png: bytes, width: int, height: int) -> None:
        summary = self._summaries.summary_pb2.Summary
        image = summary.Image(width=width, height=height, colorspace=3, encoded_image_string=png)
        self._write(step, [summary.Value(tag=tag, image=image)])

    def _write(self, step: int, values: Sequence[Any], wall_time: float | None = None) -> None:
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Files of one second would have one name, and replace each other.
            self._writer = self._events.EventsWriter(str(self._folder / "events"), f".{uuid4().hex[:8]}")
        summary = self._summaries.summary_pb2.Summary(value=values)
        event = self._summaries.event_pb2.Event(
            wall_time=time.time() if wall_time is None else wall_time, step=step, summary=summary
        )
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


def needed_module(name: str) -> Any:
    """Return a module that TensorBoard output needs; raises ``ClientError`` with what installs it."""
    try:
        if name == "tensorboardX.proto":
            importlib.import_module("tensorboardX.proto.event_pb2")
        return importlib.import_module(name)
    except ImportError as error:
        raise ClientError(
            f"Files of TensorBoard need {name.partition('.')[0].replace('PIL', 'pillow')}: pip install "
            "'megalens[tensorboard]'.",
            code="not-installed",
        ) from error


Number = tuple[int, int, str, float, float | None]
"""Step, rank, tag, value, and time."""


def _write_events(export: Export) -> None:
    times: dict[int, float] = {}
    with closing(EventFile(export.folder)) as file:
        for stream, numbers_of in (("scalars", _scalars), ("moments", _moments)):
            if stream not in export.streams:
                continue
            several = export.streams[stream].several("rank")
            now = export.started
            for batch in export.batches(stream):
                for step, numbers in groupby(numbers_of(batch), itemgetter(0)):
                    values = {}
                    # Statistics have no time of their own: they take that of their step's scalars, or earlier
                    # ones.
                    now = times.get(step, now)
                    for _, rank, tag, value, wall_time in numbers:
                        values[f"{tag}/rank{rank}" if several else tag] = value
                        now = now if wall_time is None else wall_time
                    times[step] = now
                    file.scalars(step, values, now)

        if "tensors" in export.streams:
            _histograms(export, file, times)
    if not export.read.total():
        raise ClientError(
            "The run has no scalars, statistics or histograms (tensors traced with Histogram), so there is "
            "nothing to export to tensorboard.",
            field="streams",
        )


def _histograms(export: Export, file: EventFile, times: Mapping[int, float]) -> None:
    """Write what was traced with :class:`Histogram`: the rows of a step and tag added up."""
    several, now = export.streams["tensors"].several("rank"), export.started
    step, sums = -1, dict[str, _Counts]()
    skipped = 0

    def flush() -> None:
        if sums:
            file.histograms(step, {tag: counts.fields() for tag, counts in sums.items()}, now)
            sums.clear()

    for batch in export.batches("tensors"):
        for at, text in enumerate(batch["compressor"].to_pylist()):
            histogram = Histogram.from_text(text)
            row = {name: batch[name][at].as_py() for name in _NAMED} if histogram else {}
            if histogram is None or not row["shape"] or row["shape"][-1] != 2 * histogram.bins + 1:
                skipped += 1
                continue
            if row["step"] != step:
                flush()
                step = row["step"]
                now = times.get(step, now)
            tag = "/".join(str(row[name]) for name in ("flag", "part") if row[name])
            tag = f"tensors/{tag}/{row['layer']}" + {"backward": "/gradient"}.get(row["pass"], "")
            tag += f"/{row['phase']}" if row["phase"] != "train" else ""
            tag += f"/rank{row['rank']}" if several else ""
            counts = batch["values"][at].values.to_numpy().reshape(-1, row["shape"][-1]).sum(0, np.float64)
            if (known := sums.get(tag)) is None or known.histogram != histogram:
                known = sums[tag] = _Counts(histogram, np.zeros_like(counts))
            known.add(counts, row["min"], row["max"])
    flush()
    export.read["tensors"] -= skipped
    if not export.read["tensors"]:
        del export.read["tensors"]


_NAMED = ("step", "flag", "part", "layer", "rank", "pass", "phase", "shape", "min", "max")


@dataclass
class _Counts:
    histogram: Histogram
    counts: np.ndarray
    least: float = math.inf
    greatest: float = -math.inf

    def add(self, counts: np.ndarray, least: float, greatest: float) -> None:
        self.counts += counts
        self.least, self.greatest = min(self.least, least), max(self.greatest, greatest)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a ``HistogramProto``: the bins that hold something, and the one before."""
        edges = np.array(self.histogram.edges())
        zero = [edges[0]] if self.histogram.log else [0.0]
        # Where each bin ends. Those of negative values are the mirrored ones.
        ends = np.concatenate((-edges[::-1], zero, edges[1:], [max(self.greatest, edges[-1])]))
        held = np.flatnonzero(self.counts)
        first, last = (max(0, held[0] - 1), held[-1] + 1) if len(held) else (0, 0)
        begins = np.concatenate(([min(self.least, ends[0])], ends[:-1]))
        middles = (begins + ends) / 2
        return {
            "min": self.least if math.isfinite(self.least) else begins[first],
            "max": self.greatest if math.isfinite(self.greatest) else ends[last - 1],
            "num": self.counts.sum(),
            # What the bins say: the values themselves are gone.
            "sum": float(self.counts @ middles),
            "sum_squares": float(self.counts @ middles**2),
            "bucket_limit": ends[first:last].tolist(),
            "bucket": self.counts[first:last].tolist(),
        }


def _scalars(batch: pa.RecordBatch) -> Iterator[Number]:
    columns = (batch[name].to_pylist() for name in ("step", "rank", "name", "value", "time"))
    return zip(*columns, strict=True)


def _moments(batch: pa.RecordBatch) -> Iterator[Number]:
    read = read_moments({name: batch[name].to_numpy() for name in MOMENT_COLUMNS})
    columns = [read[name].tolist() for name in _STATISTICS]
    keys = (batch[name].to_pylist() for name in ("step", "rank", "stat", "name"))
    for at, (step, rank, stat, name) in enumerate(zip(*keys, strict=True)):
        for statistic, column in zip(_STATISTICS, columns, strict=True):
            # NaN is no answer here.
            if not math.isnan(column[at]):
                yield step, rank, f"moments/{stat}/{name}/{statistic}", column[at], None


TENSORBOARD = Format(_write_events, ("scalars", "moments", "tensors"))
