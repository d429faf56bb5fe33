"""What lies in a run folder, read by pyarrow alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from megalens.protocol import stream_segments

__all__ = ["file_names", "read_arrows", "recorded_table", "segments_of", "tails_of"]


def read_arrows(path: Path) -> pa.Table:
    """Read a growing stream up to its last whole message, as a reader after a crash does."""
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
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
            return pa.concat_tables(tables, promote_options="permissive")
        except FileNotFoundError:
            continue
    raise AssertionError(f"{stream} does not stand still")


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
