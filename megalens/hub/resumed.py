"""Continues a recording: what it has of an earlier attempt is set aside, complete, and stays readable.

Upgrades recordings from before there were segments, and those whose hub was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from ..protocol import (
    MOST_RUN_FILE_BYTES,
    SEALED,
    STREAMS,
    TAIL,
    ProtocolError,
    Stream,
    attempt_folders,
    check_definition,
    is_stream_file,
    make_subfolder,
    parse_stream,
    read_json_file,
    replace_file,
    segment_name,
    shown_text,
    stream_segments,
)
from ..protocol.messages_generated import Announce, RunFile
from .discovery import HubEntry, live_hubs
from .options import HubError
from .segment_file import clear_leftovers, in_order, seal_tail, write_beside


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
        write_beside(segment, stream, file.schema_arrow, _in_order(file), old=path)
    return segment


def _first_step(batch: pa.RecordBatch | None) -> int:
    return batch["step"][0].as_py() if batch is not None and batch.num_rows else 0


def _in_order(file: Any) -> Iterator[pa.Table]:
    at = file.schema_arrow.get_field_index("step")

    def lowest(group: int) -> float | None:
        statistics = file.metadata.row_group(group).column(at).statistics
        return statistics.min if statistics is not None and statistics.has_min_max else None

    return in_order([lowest(each) for each in range(file.metadata.num_row_groups)], file.read_row_group)


_FORMAT = 2
_FILES = (".arrows", ".index", ".parquet")
_END_SECONDS = 20.0
_OVER_SECONDS = 4.0
_LOOK_SECONDS = 0.05


def read_resumed(folder: Path) -> RunFile:
    """Return the ``run.json`` of a recording that is to go on, and end a hub that only serves viewers of it.

    Raises ``HubError`` when there is no such recording, it cannot go on, or its training is still there.
    """
    shown = shown_text(str(folder), 200)
    try:
        header = read_json_file(folder / "run.json", MOST_RUN_FILE_BYTES)
        check_definition("RunFile", header, "run.json")
    except FileNotFoundError:
        raise HubError(
            f"There is no recording in {shown} to go on with: it has no run.json. Give the folder of a "
            "run, such as megalens-runs/<run id>."
        ) from None
    except (OSError, ValueError, ProtocolError) as error:
        raise HubError(f"The recording in {shown} cannot go on: {shown_text(error, 300)}") from error
    found = cast("RunFile", header)
    if found["format"] != _FORMAT or "superseded_from" in found:
        why = (
            "an earlier attempt of a run" if found["format"] == _FORMAT else "of an older version of Megalens"
        )
        raise HubError(f"The recording in {shown} cannot go on: it is {why}. Record a new run.")
    for hub in live_hubs():
        if hub.id == found["run"]["id"] or (hub.record and Path(hub.record).resolve() == folder.resolve()):
            _end(hub)
    return found


def _end(hub: HubEntry) -> None:
    until = time.monotonic() + _OVER_SECONDS
    while hub.ended is None and time.monotonic() < until:
        # A training that died a moment ago may be back at once, so that its hub has waited for it.
        time.sleep(_LOOK_SECONDS)
        there = [other for other in live_hubs() if other.id == hub.id]
        if not there:
            return
        hub = there[0]
    if hub.ended is None:
        raise HubError(
            f"The run {hub.id} is live: its hub (process {hub.pid}) still records a training. End that "
            "training first, or record a new run."
        )
    with contextlib.suppress(OSError):
        os.kill(hub.pid, signal.SIGTERM)
    until = time.monotonic() + _END_SECONDS
    while any(other.id == hub.id for other in live_hubs()):
        if time.monotonic() > until:
            raise HubError(
                f"The hub of the run {hub.id} (process {hub.pid}), whose training is over, did not end in "
                f"{_END_SECONDS:.0f} s. End it, and try again."
            )
        time.sleep(_LOOK_SECONDS)


def set_aside(folder: Path, header: RunFile, first_step: int) -> None:
    """Move what is recorded into a folder of its own: an attempt, retrained from ``first_step`` on.

    Its ``run.json`` is written first: whatever interrupts this, every file belongs to one of both. Raises
    ``HubError`` when the folder cannot be written.
    """
    number = max((int(each.name) for each in attempt_folders(folder)), default=0) + 1
    attempt = folder / "attempts" / str(number)
    run = header["run"]
    superseded = {
        **header,
        "run": {
            **run,
            "id": f"{run['id'][:80]}.attempt-{number}",
            "name": f"{run['name'][:180]}, attempt {number}",
        },
        "superseded_from": first_step,
    }
    try:
        for made in (attempt.parent, attempt):
            make_subfolder(made)
        text = json.dumps(superseded, ensure_ascii=False, allow_nan=False, indent=1)
        replace_file(attempt / "run.json", f"{text}\n".encode(), mode=None, sync=True)
        for entry in sorted(folder.iterdir()):
            if _has_rows(entry):
                if entry.is_dir():
                    clear_leftovers(folder, entry.name)
                os.replace(entry, attempt / entry.name)
    except OSError as error:
        raise HubError(
            f"Could not go on with the recording in {shown_text(str(folder), 200)}: "
            f"{error.strerror or error}."
        ) from error


def _has_rows(entry: Path) -> bool:
    if entry.is_symlink():
        return False
    if entry.is_dir():
        return any(is_stream_file(each.name) for each in entry.iterdir())
    return entry.suffix in _FILES and entry.is_file()


def changed_model(header: Mapping[str, Any], message: Announce) -> str | None:
    """Return a sentence where a resumed training is of another model or layout than before, else None."""
    changes = []
    before, now = header.get("model"), message["model"]
    if before is not None and now is not None and before != now:
        changes.append(f"of the model {_model_words(before)} and is now of {_model_words(now)}")
    older, newer = header.get("layout"), message["layout"]
    sizes = ("world_size", "tp", "pp", "dp")
    if older and newer and any(older.get(size) != newer.get(size) for size in sizes):
        sizes_of = [", ".join(f"{size} {each.get(size)}" for size in sizes) for each in (older, newer)]
        changes.append(f"laid out as {sizes_of[0]} and is now as {sizes_of[1]}")
    return (
        f"This run goes on with something else than before: it was {', and '.join(changes)}."
        if changes
        else None
    )


def _model_words(model: Mapping[str, Any]) -> str:
    return shown_text(f"{model.get('name')} with {model.get('layers')} layers", 200)
