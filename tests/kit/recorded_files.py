"""What lies in a run folder, read by pyarrow alone."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from megalens.protocol import empty_table, stream_segments

__all__ = [
    "all_sealed",
    "file_names",
    "parquet_of",
    "read_arrows",
    "recorded_table",
    "segments_of",
    "tails_of",
]


def read_arrows(path: Path) -> pa.Table:
    """Read a growing stream up to its last whole message, as a reader after a crash does. A file whose schema is not whole has no columns."""
    with pa.OSFile(str(path)) as file:
        try:
            reader = pa.ipc.open_stream(file)
        except pa.ArrowInvalid:
            return pa.table({})
        batches = []
        while True:
            try:
                batches.append(reader.read_next_batch())
            except (StopIteration, pa.ArrowInvalid, OSError):
                return pa.Table.from_batches(batches, reader.schema)


def recorded_table(folder: Path, stream: str) -> pa.Table:
    """Return the rows of every file of a stream, in the order in which they were recorded; looks again where a tail was sealed meanwhile."""
    for _ in range(100):
        try:
            tables = [
                pq.read_table(each.path) if each.sealed else read_arrows(each.path)
                for each in stream_segments(folder, stream)
            ]
            tables = [table for table in tables if table.num_columns]
            # A recorder may not have come to write anything yet.
            return pa.concat_tables(tables, promote_options="permissive") if tables else empty_table(stream)
        except FileNotFoundError:
            continue
    raise AssertionError(f"{stream} does not stand still")


def all_sealed(folder: Path, stream: str) -> None:
    """Wait until a stream of a closed recording is Parquet alone: what is not sealed within half a second, on a busy machine, is sealed after the end."""
    end = time.monotonic() + 60
    while not all(name.endswith(".parquet") for name in file_names(folder, stream)):
        assert time.monotonic() < end, file_names(folder, stream)
        time.sleep(0.01)


def parquet_of(folder: Path, stream: str) -> pa.Table:
    """Return the rows of a stream of a closed recording as any reader of Parquet reads its folder."""
    all_sealed(folder, stream)
    return pq.read_table(folder / stream)


def file_names(folder: Path, stream: str) -> list[str]:
    """Return what lies in a stream's folder."""
    place = folder / stream
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []


def segments_of(folder: Path, stream: str) -> list[Path]:
    """Return the sealed segments of a stream."""
    return [each.path for each in stream_segments(folder, stream) if each.sealed]


def tails_of(folder: Path, stream: str) -> list[Path]:
    """Return the tails of a stream."""
    return [each.path for each in stream_segments(folder, stream) if not each.sealed]
