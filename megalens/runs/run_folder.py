"""Reading a run folder: ``run.json`` and its streams, whole or cut short by a crash."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from ..hub.discovery import live_hubs
from ..protocol import (
    LAST_STEP,
    STREAMS,
    Stream,
    Streams,
    attempt_folders,
    parse_json,
    shown_text,
)
from ..protocol.messages_generated import Hello, RunState, Status
from .arrows_map import ArrowsMap, StreamEnd, arrows_end, arrows_identity, parquet_end
from .errors import ClientError
from .query import Query
from .recorded_arrow import ArrowStream
from .recorded_parquet import DAMAGE, opened_parquet
from .run_header import hello_from_zero, query_from_one, read_header, rows_from_zero, unreadable
from .run_words import attempt_words, lacking_words
from .shapes import check_shapes
from .status import bare_hello
from .tensor_places import PLACE_COLUMNS, TensorPlaces, places_of_kinds

__all__ = ["RunFolder"]

_LAYERS_FROM_ONE = 1
_STATES = ("waiting", "training", "paused", "idle", "finished", "lost")


class RunFolder:
    """One recorded run on disk.

    Parameters
    ----------
    path : str or path
        The run folder. Only ``run.json`` is read here; streams are read when asked for.

    Raises
    ------
    ClientError
        ``not-found`` when the folder holds no run, ``unreadable`` when ``run.json`` is not what it should be, ``version-mismatch`` when it
        is of a newer format.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.header = read_header(self.path)
        self.streams = Streams(STREAMS.values())
        self._unreadable = self.streams.learn(self.header.get("announced", {}))
        self.earlier: list[tuple[RunFolder, int]] = []
        """Of a training that went back to a checkpoint its earlier attempts, oldest first, each with the step from which on later ones have its steps."""
        self._take_earlier()
        # Of each stream in which reading ended early, what its file was then.
        self._damaged: dict[str, tuple[int, int] | None] = {}
        self._maps: dict[Path, ArrowsMap] = {}
        self._read_to = 0
        self.places = TensorPlaces()

    def again(self) -> RunFolder:
        """Return a fresh object for another reader, since reading keeps state; both know what either finds damaged, and where steps lie."""
        other = RunFolder(self.path)
        if other.id == self.id:
            other._damaged, other._maps, other.places = self._damaged, self._maps, self.places
            known = {part.id: part for part, _ in self.earlier}
            other.earlier = [(known.get(part.id, part).again(), until) for part, until in other.earlier]
        return other

    def _take_earlier(self) -> None:
        until = LAST_STEP + 1
        for place in reversed(attempt_folders(self.path)):
            with suppress(ClientError):
                part = RunFolder(place)
                until = min(until, part.header.get("superseded_from", until))
                self.earlier.insert(0, (part, until))
                self.streams.learn(part.header.get("announced", {}))

    @property
    def id(self) -> str:
        """Run id."""
        return self.header["run"]["id"]

    @property
    def name(self) -> str:
        """Run name."""
        return self.header["run"]["name"]

    @property
    def started(self) -> float:
        """Seconds since the epoch."""
        return self.header["run"]["started"]

    @property
    def ended(self) -> float | None:
        """Seconds since the epoch, or ``None`` when nobody closed the run."""
        return self.header.get("ended")

    @property
    def closed(self) -> bool:
        """Whether the recording was closed. One that was not may still be growing, or its hub is gone."""
        return self.ended is not None

    @property
    def state(self) -> RunState:
        """State of the run when ``run.json`` was last written."""
        state = self.header.get("state")
        return cast("RunState", state) if state in _STATES else "lost"

    @property
    def step(self) -> int:
        """Newest step that ``run.json`` knows of; streams that nobody closed may hold more."""
        own = [entry.get("last_step") or 0 for entry in self.header.get("streams", {}).values()]
        return max([*own, *(min(part.step, until - 1) for part, until in self.earlier)], default=0)

    def hello(self) -> Hello:
        """Return the ``hello`` message that a hub would send about this run."""
        hello: Hello = bare_hello(self.header["run"])
        told = (
            "model",
            "layout",
            "flags",
            "compressors",
            "config",
            "versions",
            "origin",
            "configurable",
            "statistics",
            "generation",
            "phase",
        )
        known: Any = {name: self.header[name] for name in told if name in self.header}  # type: ignore[literal-required]
        hello.update(known)
        hello["streams"] = self.streams.declarations()
        return hello_from_zero(hello) if self._layers_from_one else hello

    @property
    def missing_steps(self) -> list[list[int]]:
        """Ranges of steps that the recording lacks."""
        before = [
            [first, min(last, until - 1)]
            for part, until in self.earlier
            for first, last in part.missing_steps
            if first < until
        ]
        return [*before, *self.header.get("missing_steps", [])]

    def newest_step(self, stream: str) -> int:
        """Return the newest step of a stream; 0 where it has no rows."""
        before = (min(part.newest_step(stream), until - 1) for part, until in self.earlier)
        return max([self._end(stream).last_step, *before])

    def status(self) -> Status:
        """Return the ``status`` message that a hub would send about this run, with what is missing and cut short in its warnings."""
        writing = not self.closed and any(hub.id == self.id for hub in live_hubs())
        state = self.state if self.closed or writing else "lost"
        missing = self.missing_steps
        status: Status = {
            "type": "status",
            "state": state,
            "step": max(self.step, self._last_step()),
            "producers": [],
            "viewers": 0,
            "recording": {
                "state": "on" if writing else "closed",
                "bytes": self.bytes(),
                "missing_steps": missing,
            },
        }
        if "instruments" in self.header:
            status["instruments"] = self.header["instruments"]
        warnings = [
            f"The {shown_text(name, 200)} stream is of another version of Megalens and is not read."
            for name in self._unreadable
        ]
        if writing:
            warnings.append("The recording is still being written: its hub runs.")
        elif not self.closed:
            warnings.append("The recording was not closed: its hub ended before the run did.")
        if missing:
            warnings.append(lacking_words(missing))
        warnings += [attempt_words(part.id, until) for part, until in self.earlier]
        for stream in self.truncated():
            warnings.append(f"The {stream} stream was cut short; it is read up to its last whole message.")
        warnings += self._recorded_warnings()
        if warnings:
            status["warnings"] = warnings[:20]
        return status

    def _recorded_warnings(self) -> list[str]:
        """Return what was warned of while the run was live, in the words of then."""
        found = []
        try:
            for row in self.read("audit", columns=["action", "detail"]).to_pylist():
                if row["action"] == "warning":
                    text = parse_json(row["detail"])["text"]
                    found.append(shown_text(str(text), 500))
        except (ClientError, OSError, ValueError, KeyError, TypeError):
            # Somebody else's rows; what is wrong with the file itself is said of it.
            pass
        return found

    @property
    def _layers_from_one(self) -> bool:
        return self.header["format"] == _LAYERS_FROM_ONE

    def bytes(self) -> int:
        """Return the size of all stream files."""
        before = sum(part.bytes() for part, _ in self.earlier)
        return before + sum(
            path.stat().st_size for path in (self._file(stream) for stream in self.streams) if path
        )

    def truncated(self) -> list[str]:
        """Return the streams whose file ends within a message, or cannot be read at all.

        Rows are not read for it: damage within a file is known once somebody has read up to it.
        """
        return [stream for stream in self.streams if self._is_damaged(stream) or self._end(stream).cut]

    def read(self, stream: str, query: Query | None = None, columns: list[str] | None = None) -> pa.Table:
        """Return the rows that match.

        Parameters
        ----------
        stream : str
            Stream name.
        query : Query, optional
            Everything when absent.
        columns : list of str, optional
            Only these columns.
        """
        schema = self.streams.named(stream).schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return pa.Table.from_batches(list(self.batches(stream, query, columns)), schema=schema)

    def batches(
        self, stream: str, query: Query | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match, a piece at a time, in the order in which they were written.

        A file that grows is read up to its last whole message, and of it only the messages that may have rows of the query's steps. Steps that were trained again come as they were trained last.
        """
        for part, until in self.earlier:
            yield from part.batches(stream, (query or Query()).before(until), columns)
        yield from self._own_batches(stream, query or Query(), columns)

    def _own_batches(self, stream: str, query: Query, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        path = self._file(stream)
        if path is None:
            return
        declared = self.streams.named(stream)
        schema = declared.schema
        if self._layers_from_one:
            query = query_from_one(query)
        read = _parquet_batches if path.suffix == ".parquet" else self._arrow_batches
        for batch in read(path, declared, query, columns):
            kept = batch
            if columns is not None and kept.schema.names != columns:
                kept = kept.select(columns)
            wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
            if kept.num_rows:
                kept = kept.replace_schema_metadata(None).cast(wanted)
                check_shapes(kept, declared, path.name)
                yield rows_from_zero(declared, kept) if self._layers_from_one else kept

    def tensor_places(self, check: Callable[[], None] = lambda: None) -> TensorPlaces:
        """Return what there is of traced tensors. Of a recording that grows only what came since it was last asked is read.

        Parameters
        ----------
        check : callable
            Raises where the reading is to be given up.
        """
        if self.earlier:
            before = [(part.tensor_places(check), until) for part, until in self.earlier]
            return TensorPlaces.joined([*before, (self._own_places(check), LAST_STEP + 1)])
        return self._own_places(check)

    def _own_places(self, check: Callable[[], None]) -> TensorPlaces:
        path = self._file("tensors")
        if path is None:
            return self.places.update(None, lambda at: iter(()))
        packed = path.suffix == ".parquet"

        def read(at: int) -> Iterator[tuple[pa.RecordBatch | None, int]]:
            if packed and at:
                return
            stream = self.streams["tensors"]
            if not packed:
                messages, kinds = self._map(path).indexed(at)
                if len(messages):
                    at = int(messages[-1, 1])
                    yield places_of_kinds(messages, kinds), at
            batches = (
                self._own_batches("tensors", Query(), PLACE_COLUMNS)
                if packed
                else self._arrow_batches(path, stream, Query(), PLACE_COLUMNS, at)
            )
            for batch in batches:
                check()
                if self._layers_from_one and not packed:
                    batch = rows_from_zero(stream, batch)
                yield batch, 0 if packed else self._read_to
            if packed:
                yield None, 1

        try:
            of = _stamp(path) if packed else arrows_identity(path)
        except OSError as error:
            raise _unreadable_file(path, error) from error
        return self.places.update((path.name, of), read)

    def distinct_batches(self, stream: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield rows among which each that differs in some columns comes at least once: of a recording that grows, what its index says spares their reading."""
        for part, _ in self.earlier:
            yield from part.distinct_batches(stream, columns)
        path, since = self._file(stream), 0
        if path is None or path.suffix == ".parquet" or self._layers_from_one:
            yield from self._own_batches(stream, Query(), columns)
            return
        # Packed since it was looked for, it is read from its beginning.
        with suppress(OSError):
            messages, kinds = self._map(path).indexed()
            if len(messages):
                since = int(messages[-1, 1])
                yield from (kind.select(columns) for kind in kinds.values())
        yield from self._arrow_batches(path, self.streams.named(stream), Query(), columns, since)

    def _file(self, stream: str) -> Path | None:
        for suffix in (".parquet", ".arrows"):
            path = self.path / f"{stream}{suffix}"
            # A link could lead out of the folder that the administrator named.
            if path.is_file() and not path.is_symlink():
                return path
        return None

    def _arrow_batches(
        self,
        path: Path,
        stream: Stream,
        query: Query,
        columns: list[str] | None,
        since: int = 0,
        keys: tuple[str, ...] = (),
    ) -> Iterator[pa.RecordBatch]:
        read = stream.schema.names
        if columns is not None:
            read = [name for name in read if name in (*columns, *query.columns())]
        reading = ArrowStream(path, stream, self._map(path), query, read)
        try:
            with pa.OSFile(str(path), "rb") as source:
                reader = _open_stream(source, path, stream)
                if reader is None:
                    reading.cut = path.stat().st_size > 0 or not self.closed
                    return
                for batch in reading.batches(reader, source, since):
                    self._read_to = reading.read_to
                    yield batch
        except FileNotFoundError:
            # The hub packed it to Parquet between the look and the reading.
            packed = path.with_suffix(".parquet")
            if not packed.is_file():
                raise
            yield from _parquet_batches(packed, stream, query, columns)
        except (pa.ArrowInvalid, OSError) as error:
            if path.stat().st_size:
                raise _unreadable_file(path, error) from error
            reading.cut = True
        finally:
            if reading.cut:
                self._damaged[stream.name] = _stamp(path)

    def _map(self, path: Path) -> ArrowsMap:
        return self._maps.setdefault(path, ArrowsMap(path))

    def _is_damaged(self, stream: str) -> bool:
        path = self._file(stream)
        # One that has grown since may have ended within a message that was being written.
        return stream in self._damaged and path is not None and self._damaged[stream] == _stamp(path)

    def _last_step(self) -> int:
        if self.closed:
            return 0
        return max(self._end(name).last_step for name, s in self.streams.items() if s.policy.marks_step)

    def _end(self, stream: str) -> StreamEnd:
        path = self._file(stream)
        if path is None:
            return StreamEnd()
        if path.suffix == ".parquet":
            return _parquet_end(path, self.streams[stream])
        try:
            with pa.OSFile(str(path), "rb") as source:
                if _open_stream(source, path, self.streams[stream]) is None:
                    return StreamEnd(cut=path.stat().st_size > 0 or not self.closed)
            end = arrows_end(path, self._map(path))
        except FileNotFoundError:
            # As in reading: it was packed meanwhile.
            packed = path.with_suffix(".parquet")
            if not packed.is_file():
                raise
            return _parquet_end(packed, self.streams[stream])
        except OSError as error:
            raise _unreadable_file(path, error) from error
        if end is not None:
            return end
        last = [batch.column(0)[-1].as_py() for batch in self._own_batches(stream, Query(), ["step"])]
        return StreamEnd(self._is_damaged(stream), max(last, default=0))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size


def _open_stream(source: pa.NativeFile, path: Path, stream: Stream) -> pa.RecordBatchStreamReader | None:
    """Return a reader of an Arrow stream; None where not even the schema is whole: nothing had been recorded when the hub went."""
    schema = stream.schema
    try:
        reader = pa.ipc.open_stream(source)
        names = reader.schema.names
    except (pa.ArrowException, OSError, ValueError):
        return None
    fields = [field for field in schema if field.name in names]
    if stream.lacking(names) or not reader.schema.equals(pa.schema(fields), check_metadata=False):
        raise unreadable(
            f"The columns of {path.name} are {', '.join(names)[:300]}, and {', '.join(schema.names)} were expected."
        )
    return reader


def _parquet_end(path: Path, stream: Stream) -> StreamEnd:
    try:
        with opened_parquet(path) as file:
            _check_columns(path, stream, file.schema.names)
        return parquet_end(path)
    except DAMAGE as error:
        raise _unreadable_file(path, error) from error


def _parquet_batches(
    path: Path, stream: Stream, query: Query, columns: list[str] | None
) -> Iterator[pa.RecordBatch]:
    try:
        with opened_parquet(path) as file:
            names = file.schema.names
            _check_columns(path, stream, names)
            if query.measured and "compression_error" not in names:
                return
            read = [name for name in columns or stream.schema.names if name in names]
            for batch in file.batches(stream, read, query):
                yield stream.with_later_columns(batch, columns)
    except DAMAGE as error:
        raise _unreadable_file(path, error) from error


def _check_columns(path: Path, stream: Stream, names: list[str]) -> None:
    missing = stream.lacking(names)
    if missing:
        raise unreadable(f"{path.name} lacks the columns {', '.join(missing)}.")


def _unreadable_file(path: Path, error: Exception) -> ClientError:
    if isinstance(error, PermissionError):
        return unreadable(f"{path.name}: {os.strerror(errno.EACCES)}. You need the permission to read it.")
    return unreadable(f"{path.name}: {str(error).replace(str(path.parent), '…')[:300]}")
