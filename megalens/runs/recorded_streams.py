"""Reading the streams of one run folder, segment by segment, while files may be sealed or removed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from ..protocol import Segment, Stream, Streams, file_name, stream_segments
from . import arrow_compute as pc
from .errors import ClientError, no_memory
from .query import Query
from .recorded_arrow import DAMAGE, ArrowStream, FileStamp, arrows_identity
from .recorded_parquet import opened_parquet
from .remote import bring, bytes_there
from .run_header import query_from_one, rows_from_zero, unreadable
from .tensor_index import INDEX_COLUMNS, SegmentFile, TensorIndex

_TENSORS = "tensors"
Found = TypeVar("Found")


class StreamEnd(NamedTuple):
    """A stream's or file's least and largest step, and whether it is ``cut``: incomplete or damaged."""

    first_step: int | None = None
    last_step: int | None = None
    cut: bool = False

    def joined(self, other: StreamEnd) -> StreamEnd:
        steps = [step for step in (*self[:2], *other[:2]) if step is not None]
        return StreamEnd(min(steps, default=None), max(steps, default=None), self.cut or other.cut)

    def may_have(self, query: Query) -> bool:
        if self.first_step is None or self.last_step is None:
            return False
        late = query.last is not None and self.first_step > query.last
        return not late and not (query.first is not None and self.last_step < query.first)


class _KnownEnd(NamedTuple):
    stamp: FileStamp
    end: StreamEnd
    # Of a tail: its identity, and the end of its last complete message.
    identity: tuple[int, int] = (0, 0)
    read_to: int = 0


@dataclass
class KnownFiles:
    """What is known of a run folder's files, so that only new data is read. Any thread may ask.

    ``damaged`` has the files in which a reading ended early, with their state then: one that grew since may
    have been in mid-message.
    """

    ends: dict[Path, _KnownEnd] = field(default_factory=dict)
    damaged: dict[Path, FileStamp] = field(default_factory=dict)
    tensors: TensorIndex = field(default_factory=TensorIndex)


class RecordedStreams:
    """Reads the files of a run folder's streams, without those of earlier attempts.

    ``layers_from_one`` marks recordings of format 1, which count layers from 1.
    """

    def __init__(self, folder: Path, streams: Streams, layers_from_one: bool, known: KnownFiles) -> None:
        self._folder = folder
        self._streams = streams
        self._layers_from_one = layers_from_one
        self.known = known

    def bytes(self) -> int:
        if (there := bytes_there(self._folder)) is not None:
            return there
        total = 0
        for segment in (segment for stream in self._streams for segment in self._listed(stream)):
            # A missing file was sealed meanwhile, or dropped.
            with suppress(FileNotFoundError):
                total += segment.path.stat().st_size
        return total

    def batches(self, stream: str, query: Query, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows in recorded order. Files known to have none are not opened."""
        declared = self._streams.named(stream)
        if self._layers_from_one:
            query = query_from_one(query)
        bring(self._folder, stream, query)
        for batch, _ in self._in_order(stream, lambda each: self._rows(each, declared, query, columns)):
            yield batch

    def end(self, stream: str, newest: int = 2) -> StreamEnd:
        """Return how far a stream goes, by the footers of its sealed files; of a tail what is new is read.

        Of a run on other storage the tails and ``newest`` segments count: later ones have later steps, but
        for those of slow ranks.
        """
        bring(self._folder, stream, newest=newest)
        found = StreamEnd()
        for end in self._in_order(stream, lambda each: iter([self._end(each, self._streams[stream])])):
            found = found.joined(end)
        return found

    def ranks(self, stream: str) -> Iterator[set[int]]:
        """Yield the ranks of a stream's rows, a file or a piece at a time, by the footers of sealed files."""
        declared = self._streams[stream]
        bring(self._folder, stream)

        def read(segment: Segment) -> Iterator[set[int]]:
            if segment.sealed and (only := _only_rank(segment.path)) is not None:
                yield {only}
            else:
                for batch, _ in self._rows(segment, declared, Query(), ["rank"]):
                    yield {*pc.unique(batch.column("rank")).to_pylist()}

        return self._in_order(stream, read)

    def is_cut(self, stream: str) -> bool:
        damaged = self.known.damaged
        return self.end(stream, newest=0).cut or any(
            segment.path in damaged and damaged[segment.path] == _stamp(segment.path)
            for segment in self._listed(stream)
        )

    def tensor_index(self, check: Callable[[], None]) -> TensorIndex:
        stream = self._streams[_TENSORS]

        def read(segment: Segment, since: int) -> Iterator[tuple[pa.RecordBatch, int]]:
            for batch, at in self._rows(segment, stream, Query(), INDEX_COLUMNS, since):
                check()
                yield batch, at

        bring(self._folder, _TENSORS)
        segments = self._listed(_TENSORS)
        while True:
            try:
                return self.known.tensors.update([_file_of(segment) for segment in segments], read)
            except FileNotFoundError as error:
                # It was sealed meanwhile, or dropped.
                before, segments = segments, self._listed(_TENSORS)
                if segments == before:
                    raise unreadable_file(segments[0].path, error) from error

    def begins(self, stream: str) -> list[int]:
        """Return the first step of each file, as it was recorded."""
        return [segment.first_step for segment in self._listed(stream)]

    def _listed(self, stream: str) -> list[Segment]:
        try:
            return stream_segments(self._folder, stream)
        except OSError as error:
            raise unreadable_file(self._folder / stream, error) from error

    def _in_order(self, stream: str, read: Callable[[Segment], Iterator[Found]]) -> Iterator[Found]:
        """Yield what each segment gives. Where a file is gone, it was sealed or removed: segments are listed
        anew from there.

        A file that is gone has given nothing yet, since an open one can be read to its end.
        """
        done, gone = -2, None
        while True:
            for segment in self._listed(stream):
                if segment.number <= done:
                    continue
                try:
                    yield from read(segment)
                except FileNotFoundError as error:
                    if segment.path == gone:
                        raise unreadable_file(segment.path, error) from error
                    gone = segment.path
                    break
                done = segment.number
            else:
                return

    def _rows(
        self, segment: Segment, stream: Stream, query: Query, columns: list[str] | None, since: int = 0
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the matching rows of a file, and to where it is read (0 for a sealed one)."""
        names = stream.schema.names if columns is None else columns
        wanted = pa.schema([stream.schema.field(name) for name in names])
        read = self._sealed_rows if segment.sealed else self._tail_rows
        for batch, at in read(segment, stream, query, names, since):
            chosen = batch if batch.schema.names == names else batch.select(names)
            if chosen.num_rows:
                chosen = chosen.replace_schema_metadata(None)
                # A cast imports all of pyarrow.compute, which takes a fifth of a short command.
                chosen = chosen if chosen.schema == wanted else chosen.cast(wanted)
                _check_present(chosen, file_name(segment.path))
                _check_shapes(chosen, stream, file_name(segment.path))
                yield rows_from_zero(stream, chosen) if self._layers_from_one else chosen, at

    def _sealed_rows(
        self, segment: Segment, stream: Stream, query: Query, columns: list[str], since: int
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        if (query.first, query.last) != (None, None) and not self._end(segment, stream).may_have(query):
            return
        with _readable(segment.path), opened_parquet(segment.path) as file:
            names = file.schema.names
            _check_columns(segment.path, stream, names)
            if query.measured and "compression_error" not in names:
                return
            for batch in file.batches(stream, [name for name in columns if name in names], query):
                yield stream.with_later_columns(batch, columns), 0

    def _tail_rows(
        self, segment: Segment, stream: Stream, query: Query, columns: list[str], since: int
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        reading = ArrowStream(segment.path, stream, query, columns)
        try:
            with _readable(segment.path, (OSError,)):
                for batch in reading.batches(since or self._begin(segment.path, query)):
                    yield batch, reading.read_to
        finally:
            stamp = _stamp(segment.path) if reading.cut else None
            if stamp is not None:
                self.known.damaged[segment.path] = stamp

    def _begin(self, path: Path, query: Query) -> int:
        """Return the offset at which to begin in a tail: what is known to be of other steps is skipped."""
        known = self.known.ends.get(path)
        if known is None or known.end.may_have(query):
            return 0
        return known.read_to if known.identity == arrows_identity(path) else 0

    def _end(self, segment: Segment, stream: Stream) -> StreamEnd:
        path = segment.path
        with _readable(path):
            stamp = FileStamp.of(path.stat())
            known = self.known.ends.get(path)
            if known is None or known.stamp != stamp:
                look = _sealed_end if segment.sealed else _tail_end
                known = self.known.ends[path] = look(path, stream, stamp, known)
            return known.end


def _sealed_end(path: Path, stream: Stream, stamp: FileStamp, known: _KnownEnd | None) -> _KnownEnd:
    with opened_parquet(path) as file:
        _check_columns(path, stream, file.schema.names)
        return _KnownEnd(stamp, StreamEnd(*(file.steps() or ())))


def _only_rank(path: Path) -> int | None:
    with _readable(path), opened_parquet(path) as file:
        return file.only("rank")


def _tail_end(path: Path, stream: Stream, stamp: FileStamp, known: _KnownEnd | None) -> _KnownEnd:
    identity = arrows_identity(path)
    end, since = StreamEnd(), 0
    if known is not None and known.identity == identity and known.read_to <= stamp.size:
        end, since = known.end._replace(cut=False), known.read_to
    reading = ArrowStream(path, stream, Query(), ["step"])
    for batch in reading.batches(since):
        steps = pc.min_max(batch.column("step")).as_py()
        end = end.joined(StreamEnd(steps["min"], steps["max"]))
    return _KnownEnd(stamp, end._replace(cut=reading.cut), identity, reading.read_to)


def _check_columns(path: Path, stream: Stream, names: list[str]) -> None:
    missing = stream.lacking(names)
    if missing:
        raise unreadable(f"{file_name(path)} lacks the columns {', '.join(missing)}.")


def _stamp(path: Path) -> FileStamp | None:
    try:
        return FileStamp.of(path.stat())
    except OSError:
        return None


def _file_of(segment: Segment) -> SegmentFile:
    """Return what tells a segment's file from one that replaced it."""
    with _readable(segment.path, (OSError,)):
        of = FileStamp.of(segment.path.stat()) if segment.sealed else arrows_identity(segment.path)
        return SegmentFile(segment, of)


@contextmanager
def _readable(path: Path, damage: tuple[type[Exception], ...] = DAMAGE) -> Iterator[None]:
    """Raise ``ClientError`` for what is wrong with a file, unless it is gone: it may have been sealed."""
    try:
        yield
    except FileNotFoundError:
        raise
    except damage as error:
        raise unreadable_file(path, error) from error


def unreadable_file(path: Path, error: Exception) -> ClientError:
    if isinstance(error, MemoryError):
        return no_memory(file_name(path))
    if isinstance(error, PermissionError):
        return unreadable(
            f"{file_name(path)}: {os.strerror(errno.EACCES)}. You need the permission to read it."
        )
    return unreadable(f"{file_name(path)}: {str(error).replace(str(path.parent), '…')[:300]}")


def entries_of(shapes: pa.ListArray) -> Any:
    """Return the product of each shape; an empty tensor has 0, a shape of no axes 1."""
    lengths = pc.list_value_length(shapes).to_numpy()
    sizes = np.ones(len(shapes))
    axes = pc.list_flatten(shapes).to_numpy().astype(np.float64)
    filled = lengths > 0
    if len(axes):
        starts = np.concatenate([[0], np.cumsum(lengths[filled])[:-1]])
        sizes[filled] = np.multiply.reduceat(axes, starts)
    return np.maximum(sizes, 0)


def _check_present(batch: pa.RecordBatch, name: str) -> None:
    """Raise ``unreadable`` for rows without a whole number, a text, a list or a part of one.

    No recorder leaves one out. A number that is not whole may be missing, and is NaN.
    """
    for of, column in zip(batch.schema, batch.columns, strict=True):
        lacking = 0 if pa.types.is_floating(of.type) else column.null_count
        if pa.types.is_list(of.type):
            lacking += column.flatten().null_count
        if lacking:
            raise unreadable(
                f"{name}: every row must have all of {of.name}, and in {len(column):,} rows {lacking:,} are "
                "missing.",
                of.name,
            )


def _check_shapes(batch: pa.RecordBatch, stream: Stream, name: str) -> None:
    """Raise ``unreadable`` for rows whose number of values is not that of their shape: sizes and layouts rely
    on it.

    A stream with several columns of values is not checked: nobody knows which the shape is of.
    """
    shape = stream.policy.shape
    values = [each.name for each in stream.schema if each.type == pa.list_(pa.float32())]
    if shape is None or len(values) != 1 or not {shape, *values} <= set(batch.schema.names):
        return
    shapes, counts = batch.column(shape), pc.list_value_length(batch.column(values[0])).to_numpy()
    wrong = np.flatnonzero(entries_of(shapes) != counts)
    negative = pc.min(pc.list_flatten(shapes)).as_py()
    if len(wrong) or (negative is not None and negative < 0):
        at = int(wrong[0]) if len(wrong) else 0
        raise unreadable(
            f"{name}: {shape} must say how many {values[0]} a row has, got {shapes[at].as_py()!s:.100} and "
            f"{int(counts[at])} of them.",
            shape,
        )
