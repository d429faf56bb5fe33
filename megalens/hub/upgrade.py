"""Upgrades recordings from before there were segments, and those whose hub was killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..protocol import (
    MOST_RUN_FILE_BYTES,
    PARTIAL,
    SEALED,
    STREAMS,
    TAIL,
    ProtocolError,
    Stream,
    attempt_folders,
    make_subfolder,
    new_file_mode,
    parse_stream,
    read_json_file,
    segment_name,
    stream_segments,
    take_mode,
)
from .discovery import live_hubs
from .options import HubError
from .segment_file import clear_leftovers, in_order, seal_tail, write_segment


def upgrade_recording(folder: Path) -> Iterator[str]:
    """Rewrite each ``<stream>.parquet`` and ``<stream>.arrows`` of a recording to a segment, and seal its
    tails.

    Every row is in exactly one file at every moment, and what cannot be rewritten stays as it is. Earlier
    attempts are rewritten, too. Yields a sentence about each file, as soon as it is done; raises ``HubError``
    when there is no recording, or its hub still runs.
    """
    if any(hub.record and Path(hub.record).resolve() == folder.resolve() for hub in live_hubs()):
        raise HubError("The run is live: its hub still has the recording. End it first.")
    for run in (folder, *attempt_folders(folder)):
        for stream in _streams(run):
            before = run.relative_to(folder) / stream.name
            for path in _old_files(run, stream.name):
                yield from _report(before.with_suffix(path.suffix), partial(_adopt, path, stream))
            clear_leftovers(run, stream.name)
            for each in stream_segments(run, stream.name):
                if not each.sealed:
                    tail = each.path
                    yield from _report(before / tail.name, partial(seal_tail, tail, stream))


def _streams(run: Path) -> list[Stream]:
    try:
        header = read_json_file(run / "run.json", MOST_RUN_FILE_BYTES)
        declared: dict[str, Any] = header.get("announced") or {}
        return [*STREAMS.values(), *(parse_stream(name, declared[name]) for name in declared)]
    except FileNotFoundError:
        raise HubError("There is no recording: the folder has no run.json.") from None
    except (OSError, ValueError, AttributeError, ProtocolError) as error:
        raise HubError(f"run.json cannot be read: {error}") from error


def _report(name: Path, work: Callable[[], Path]) -> Iterator[str]:
    try:
        made = work()
    except OSError as error:
        yield f"{name} stays as it is: {error.strerror or error}."
    except (HubError, pa.ArrowException, MemoryError) as error:
        yield f"{name} stays as it is: {str(error) or 'out of memory'}"
    else:
        yield f"{name} is now {made.parent.name}/{made.name}."


def _old_files(run: Path, stream: str) -> Iterator[Path]:
    packed, growing = run / f"{stream}{SEALED}", run / f"{stream}{TAIL}"
    paths = [path for path in (packed, growing) if path.is_file() and not path.is_symlink()]
    if len(paths) > 1:
        # A hub that was killed had packed it, and the packed one counts.
        paths.pop().unlink()
    (run / f"{stream}.index").unlink(missing_ok=True)
    yield from paths


def _adopt(path: Path, stream: Stream) -> Path:
    """Move a file of a stream into its folder: a renaming, which no reader can see half of."""
    folder = path.parent / stream.name
    if any(each.number >= 0 for each in stream_segments(path.parent, stream.name)):
        raise HubError(f"{stream.name} has segments already, of which it could not be the first.")
    if path.suffix == TAIL:
        with pa.memory_map(str(path)) as source:
            batch = next(iter(pa.ipc.open_stream(source)), None)
        make_subfolder(folder)
        tail = folder / segment_name(0, _first_step(batch), TAIL)
        os.replace(path, tail)
        return seal_tail(tail, stream)
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        first = next(file.iter_batches(1, columns=["step"]), None)
        make_subfolder(folder)
        segment = folder / segment_name(0, _first_step(first), SEALED)
        half = segment.with_name(segment.name + PARTIAL)
        try:
            with open(half, "wb", buffering=1 << 20) as made:
                take_mode(made.fileno(), new_file_mode(folder))
                write_segment(made, stream, file.schema_arrow, _in_order(file))
                made.flush()
                os.fsync(made.fileno())
            os.replace(path, segment)
            os.replace(half, segment)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
    return segment


def _first_step(batch: pa.RecordBatch | None) -> int:
    return batch["step"][0].as_py() if batch is not None and batch.num_rows else 0


def _in_order(file: Any) -> Iterator[pa.Table]:
    at = file.schema_arrow.get_field_index("step")

    def lowest(group: int) -> float | None:
        statistics = file.metadata.row_group(group).column(at).statistics
        return statistics.min if statistics is not None and statistics.has_min_max else None

    return in_order([lowest(each) for each in range(file.metadata.num_row_groups)], file.read_row_group)
