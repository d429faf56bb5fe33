"""Reading a run folder: ``run.json`` and its streams, whole or cut short by a crash."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..protocol import STREAMS, ProtocolError, Stream, Streams
from ..protocol.messages import check_message
from ..protocol.messages_generated import Hello, RunState, Status
from .bare_hello import bare_hello
from .errors import ClientError
from .query import Query
from .stream_end import StreamEnd, arrows_end, parquet_end

__all__ = ["RunFolder"]

_FORMAT = 1
_MAX_HEADER_BYTES = 32 * 1024 * 1024
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ENDED = ("finished", "lost")


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
        self.header = _read_header(self.path)
        self.streams, self._unreadable = _streams(self.header)
        # Of each stream in which reading ended early, what its file was then.
        self._damaged: dict[str, tuple[int, int] | None] = {}

    def again(self) -> RunFolder:
        """Return a fresh object for another reader, since reading keeps state; both know what either finds damaged."""
        other = RunFolder(self.path)
        other._damaged = self._damaged
        return other

    @property
    def id(self) -> str:
        """Run id."""
        return str(self.header["run"]["id"])

    @property
    def name(self) -> str:
        """Run name."""
        return str(self.header["run"]["name"])

    @property
    def started(self) -> float:
        """Seconds since the epoch."""
        return float(self.header["run"]["started"])

    @property
    def ended(self) -> float | None:
        """Seconds since the epoch, or ``None`` when nobody closed the run."""
        value = self.header.get("ended")
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def closed(self) -> bool:
        """Whether the recording was closed. One that was not may still be growing, or its hub is gone."""
        return self.ended is not None

    @property
    def state(self) -> RunState:
        """State of the run when ``run.json`` was last written."""
        state = self.header.get("state")
        return state if state in ("waiting", "training", "paused", "idle", *_ENDED) else "lost"

    @property
    def step(self) -> int:
        """Newest step that ``run.json`` knows of; streams that nobody closed may hold more."""
        entries = self.header.get("streams")
        entries = entries.values() if isinstance(entries, dict) else ()
        steps = [entry.get("last_step") for entry in entries if isinstance(entry, dict)]
        return max((step for step in steps if isinstance(step, int) and step > 0), default=0)

    def hello(self) -> Hello:
        """Return the ``hello`` message that a hub would send about this run."""
        header = self.header
        told = ("model", "layout", "flags", "compressors", "config", "versions", "origin", "statistics")
        hello: Hello = bare_hello(header["run"])
        # Whether a recording's file holds what a message may say is checked below.
        known: Any = {name: header[name] for name in told if header.get(name)} | {
            "streams": self.streams.told()
        }
        hello.update(known)
        try:
            check_message(hello)
        except ProtocolError as error:
            raise _unreadable(f"{error.message}") from error
        return hello

    def status(self) -> Status:
        """Return the ``status`` message that a hub would send about this run, with what is missing and cut short in its warnings."""
        state = self.state if self.closed else "lost"
        missing = [
            list(pair)
            for pair in self.header.get("missing_steps") or []
            if isinstance(pair, list) and len(pair) == 2 and all(isinstance(step, int) for step in pair)
        ]
        status: Status = {
            "type": "status",
            "state": state,
            "step": max(self.step, self._last_step()),
            "producers": [],
            "viewers": 0,
            "recording": {"state": "closed", "bytes": self.bytes(), "missing_steps": missing},
        }
        warnings = [
            f"The {name} stream is of another version of Megalens and is not read."
            for name in self._unreadable
        ]
        if not self.closed:
            warnings.append("The recording was not closed: its hub ended before the run did.")
        if missing:
            warnings.append(f"The recording lacks {_spans(missing)}.")
        for stream in self.truncated():
            warnings.append(f"The {stream} stream was cut short; it is read up to its last whole message.")
        if warnings:
            status["warnings"] = warnings[:20]
        return status

    def bytes(self) -> int:
        """Return the size of all stream files."""
        return sum(path.stat().st_size for path in (self._file(stream) for stream in self.streams) if path)

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
        """Yield the rows that match, a piece at a time, in the order in which they were written."""
        path = self._file(stream)
        if path is None:
            return
        declared = self.streams.named(stream)
        schema = declared.schema
        query = query or Query()
        read = _parquet_batches if path.suffix == ".parquet" else self._arrow_batches
        for batch in read(path, declared, query, columns):
            kept = batch
            if columns is not None and kept.schema.names != columns:
                kept = kept.select(columns)
            wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
            if kept.num_rows:
                yield kept.replace_schema_metadata(None).cast(wanted)

    def _file(self, stream: str) -> Path | None:
        for suffix in (".parquet", ".arrows"):
            path = self.path / f"{stream}{suffix}"
            # A link could lead out of the folder that the administrator named.
            if path.is_file() and not path.is_symlink():
                return path
        return None

    def _arrow_batches(
        self, path: Path, stream: Stream, query: Query, columns: list[str] | None
    ) -> Iterator[pa.RecordBatch]:
        expression = query.expression()
        cut = False
        try:
            with pa.OSFile(str(path), "rb") as source:
                reader = _open_stream(source, path, stream)
                if reader is None:
                    cut = path.stat().st_size > 0 or not self.closed
                    return
                while True:
                    try:
                        batch = reader.read_next_batch()
                        batch.validate(full=True)
                    except StopIteration:
                        break
                    except (pa.ArrowException, OSError, ValueError):
                        cut = True
                        break
                    batch = stream.with_later_columns(batch)
                    kept = batch if expression is None else batch.filter(expression)
                    if kept.num_rows:
                        yield kept
        except FileNotFoundError:
            # The hub packed it to Parquet between the look and the reading.
            packed = path.with_suffix(".parquet")
            if not packed.is_file():
                raise
            yield from _parquet_batches(packed, stream, query, columns)
        except (pa.ArrowInvalid, OSError) as error:
            if path.stat().st_size:
                raise _unreadable_file(path, error) from error
            cut = True
        finally:
            if cut:
                self._damaged[stream.name] = _stamp(path)

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
            end = arrows_end(path)
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
        last = [batch.column(0)[-1].as_py() for batch in self.batches(stream, columns=["step"])]
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
    except (pa.ArrowException, OSError, ValueError):
        return None
    names = reader.schema.names
    fields = [field for field in schema if field.name in names]
    if stream.lacking(names) or not reader.schema.equals(pa.schema(fields), check_metadata=False):
        raise _unreadable(
            f"The columns of {path.name} are {', '.join(names)[:300]}, and {', '.join(schema.names)} were expected."
        )
    return reader


def _parquet_end(path: Path, stream: Stream) -> StreamEnd:
    import pyarrow.parquet as pq

    try:
        _check_columns(path, stream, pq.read_schema(path).names)
        return parquet_end(path)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable_file(path, error) from error


def _parquet_batches(
    path: Path, stream: Stream, query: Query, columns: list[str] | None
) -> Iterator[pa.RecordBatch]:
    import pyarrow.dataset as ds

    try:
        dataset = ds.dataset(path, format="parquet")
        _check_columns(path, stream, dataset.schema.names)
        if query.measured and "compression_error" not in dataset.schema.names:
            return
        names = [name for name in columns or stream.schema.names if name in dataset.schema.names]
        # Row groups whose statistics exclude the filter are never read.
        scanner = dataset.scanner(columns=names, filter=query.expression(), use_threads=False)
        for batch in scanner.to_batches():
            yield stream.with_later_columns(batch, columns)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable_file(path, error) from error


def _check_columns(path: Path, stream: Stream, names: list[str]) -> None:
    missing = stream.lacking(names)
    if missing:
        raise _unreadable(f"{path.name} lacks the columns {', '.join(missing)}.")


def _streams(header: dict[str, Any]) -> tuple[Streams, list[str]]:
    """Return the streams that a recording may have, and the names of those whose declaration cannot be read."""
    streams = Streams(STREAMS.values())
    announced = header.get("announced")
    return streams, streams.learn(announced if isinstance(announced, dict) else {})


def _read_header(path: Path) -> dict[str, Any]:
    file = path / "run.json"
    if not file.is_file():
        what = "does not exist" if not path.exists() else "holds no run.json"
        raise ClientError(
            f"{path.name or path} {what}. Give the folder of one recorded run, such as megalens-runs/<run id>."
        )
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_HEADER_BYTES + 1)
        if len(data) > _MAX_HEADER_BYTES:
            raise ValueError("it is larger than 32 MiB")
        header = json.loads(data)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _unreadable(f"run.json: {reason}") from error
    if not isinstance(header, dict):
        raise _unreadable("run.json does not hold a JSON object.")
    found = header.get("format")
    if isinstance(found, int) and not isinstance(found, bool) and found > _FORMAT:
        raise ClientError(
            f"This run folder is of format {found}; this version of Megalens reads up to format {_FORMAT}. Update megalens.",
            code="version-mismatch",
            field="format",
        )
    if found != _FORMAT or isinstance(found, bool):
        raise _unreadable(f"run.json has format {found!r:.50}, and {_FORMAT} was expected.")
    run = header.get("run")
    if not (
        isinstance(run, dict)
        and isinstance(run.get("id"), str)
        and _RUN_ID.fullmatch(run["id"])
        and isinstance(run.get("name"), str)
        and isinstance(run.get("started"), (int, float))
    ):
        raise _unreadable("run.json does not say which run it is.")
    return header


def _unreadable(reason: str) -> ClientError:
    return ClientError(f"Could not read the run folder. {reason}", code="unreadable")


def _unreadable_file(path: Path, error: Exception) -> ClientError:
    if isinstance(error, PermissionError):
        return _unreadable(f"{path.name}: {os.strerror(errno.EACCES)}. You need the permission to read it.")
    return _unreadable(f"{path.name}: {str(error).replace(str(path.parent), '…')[:300]}")


def _spans(missing: list[list[int]]) -> str:
    spans = [str(first) if first == last else f"{first} to {last}" for first, last in missing[:5]]
    more = f" and {len(missing) - 5} more ranges" if len(missing) > 5 else ""
    return f"step{'s' if len(missing) > 1 or missing[0][0] != missing[0][1] else ''} {', '.join(spans)}{more}"
