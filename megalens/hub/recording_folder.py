"""The files of one recording."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..protocol import (
    STREAMS,
    CheckedBody,
    Stream,
    index_path,
    replace_file,
)
from .stream_file import StreamFile

__all__ = ["GivenUp", "RecordingFolder", "pack_stream"]

_PIECES = 256
"""A bounded recording gives up its oldest rows in pieces of about one part in so many of its bytes."""
_DICTIONARY_BYTES = 16 * 1024 * 1024


def pack_stream(source: Path, stream: str | Stream) -> Path:
    """Write the rows of ``source`` to Parquet beside it, and remove ``source`` once they are safely on disk.

    Parameters
    ----------
    source : Path
        The ``.arrows`` file. One that was cut short is packed up to its last whole message.
    stream : str or Stream
        Its stream, one of ``streams.json`` by its name.

    Returns
    -------
    Path
        The Parquet file.

    Raises
    ------
    OSError
        When the disk is full or fails. ``source`` is then as it was.
    """
    declared = STREAMS.named(stream) if isinstance(stream, str) else stream
    target = source.with_suffix(".parquet")
    partial = source.with_suffix(".parquet.partial")
    try:
        with pa.OSFile(str(source), "rb") as file:
            _copy_rows(file, partial, declared)
        descriptor = os.open(partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, target)
        sync_folder(target.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    source.unlink()
    index_path(source).unlink(missing_ok=True)
    return target


def sync_folder(folder: Path) -> None:
    """Make the folder's own entries safe on disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_rows(file: pa.NativeFile, partial: Path, stream: Stream) -> None:
    # Only the end of a recording needs it, and the start should not wait for it.
    import pyarrow.parquet as pq

    policy = stream.policy
    schema = stream.schema
    if not policy.null_marks:
        # No row has nulls, and marks of which there are none would cost as much to read as the numbers.
        schema = pa.schema([field.with_nullable(False) for field in schema])
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    with (
        pa.ipc.open_stream(file) as reader,
        pq.ParquetWriter(
            partial,
            schema,
            **_codecs(policy.fast, schema.names),
            use_dictionary=True if policy.dictionary is None else list(policy.dictionary),
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
        ) as writer,
    ):

        def flush() -> None:
            nonlocal rows, size
            if batches:
                writer.write_table(
                    pa.Table.from_batches(batches).cast(schema), row_group_size=policy.group_rows
                )
            batches.clear()
            rows = size = 0

        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            except (pa.ArrowInvalid, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                break
            batches.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= policy.group_rows or size >= policy.group_bytes:
                flush()
        flush()


def _codecs(fast: tuple[str, ...], columns: list[str]) -> dict[str, Any]:
    if not fast:
        return {"compression": "zstd", "compression_level": 3}
    return {
        # Of numbers of which hardly any comes twice there is nothing to compress but repetitions, which the
        # fastest codec finds as well and undoes at no cost.
        "compression": {name: "lz4" if name in fast else "zstd" for name in columns},
        "compression_level": {name: 3 for name in columns if name not in fast},
    }


@dataclass(frozen=True)
class GivenUp:
    """What a recording lacks because it may not take more bytes.

    Attributes
    ----------
    rows : int
        How many rows.
    first_step, last_step : int
        Of which steps.
    """

    rows: int
    first_step: int
    last_step: int


class RecordingFolder:
    """The run folder that a recorder writes.

    Parameters
    ----------
    path : Path
        The folder, made here unless a recording goes on in it.
    limit_bytes : int or None
        What :meth:`keep_newest` keeps to.
    resumes : bool
        Whether a recording goes on.

    Raises
    ------
    OSError
        When it cannot be made or written.
    """

    def __init__(self, path: Path, limit_bytes: int | None = None, *, resumes: bool = False) -> None:
        self.path = path
        self.streams: dict[str, StreamFile] = {}
        self._limit = limit_bytes
        path.mkdir(parents=True, exist_ok=resumes)

    def deleted(self) -> bool:
        """Whether the recording was deleted: its ``run.json`` goes last."""
        return not os.path.lexists(self.path / "run.json")

    def mend(self) -> list[StreamFile]:
        """Make the folder again where somebody removed it, and return the files that are gone with what they
        held.

        Raises
        ------
        OSError
            When it cannot be made.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        gone = [file for file in self.streams.values() if not file.there()]
        for file in gone:
            file.close()
            del self.streams[file.stream.name]
        return gone

    def append(self, body: CheckedBody) -> None:
        """Add rows to their stream's file, made when its first rows come."""
        stream = body.declared
        file = self.streams.get(stream.name)
        if file is None:
            pieces = self._limit is not None and stream.policy.keep == "newest"
            file = StreamFile(
                self.path / f"{stream.name}.arrows", stream, (self._limit or 0) // _PIECES if pieces else None
            )
            self.streams[stream.name] = file
        file.append(body)

    def keep_newest(self) -> GivenUp | None:
        """Give up the oldest steps of the streams of which only the newest rows are kept, where the recording
        takes more than it may; None where nothing was.

        A quarter of the limit is made free at once, since what stays is copied. Streams that are kept whole
        (scalars, audit) stay.

        Raises
        ------
        OSError
            When the disk is full or fails.
        """
        if self._limit is None or self.bytes <= self._limit:
            return None
        excess = self.bytes - self._limit * 3 // 4
        oldest = sorted(
            (piece.last_step, piece.bytes) for file in self.streams.values() for piece in file.pieces[:-1]
        )
        last = None
        for step, size in oldest:
            if excess <= 0:
                break
            last, excess = step, excess - size
        if last is None:
            return None
        gone = [piece for file in self.streams.values() for piece in file.give_up(last)]
        if not gone:
            return None
        first = min(piece.first_step for piece in gone)
        return GivenUp(
            sum(piece.rows for piece in gone), max(0, first), max(piece.last_step for piece in gone)
        )

    @property
    def bytes(self) -> int:
        """Bytes written so far."""
        return sum(file.bytes for file in self.streams.values())

    def write_description(self, description: Mapping[str, object]) -> None:
        """Replace ``run.json`` atomically, adding what the streams hold."""
        streams = {name: file.summary() for name, file in self.streams.items()}
        text = json.dumps({**description, "streams": streams}, ensure_ascii=False, allow_nan=False, indent=1)
        replace_file(self.path / "run.json", f"{text}\n".encode(), sync=True)

    def pack(self) -> None:
        """Close every stream and turn it into Parquet."""
        for file in self.streams.values():
            file.sync()
            file.close()
            pack_stream(file.path, file.stream)
        sync_folder(self.path)

    def close(self) -> None:
        """Close the files as they are. Safe twice."""
        for file in self.streams.values():
            file.close()
