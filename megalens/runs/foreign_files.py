"""Files of other tools that are opened as a run: who reads them, and what the cache keeps of them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..protocol import replace_file, segment_name, shown_text, stream_schema
from ..slices import find_slices, load
from .errors import ClientError

if TYPE_CHECKING:
    import pyarrow as pa

    from .run_folder import RunFolder

Progress = Callable[[int, int, str], object]
"""Called with (bytes done, bytes in all, what is being done); may raise to cancel."""

_MOST_PROBLEMS, _MOST_PROBLEM = 200, 500
_MOST_FILES = 20_000
_ROWS = 1 << 17
_READERS = ("megalens.runs.inspect_logs:INSPECT_LOGS", "megalens.runs.tensorboard_files:EVENT_FILES")
"""The core's own, asked after those of the slices."""


class _Holds(Protocol):
    def __call__(self, path: Path, within: Path | None = None) -> bool: ...


class _Reads(Protocol):
    def __call__(
        self, path: Path, progress: Progress | None = None, within: Path | None = None
    ) -> RunFolder: ...


class ForeignFiles(NamedTuple):
    """How files of other tools are opened.

    Attributes
    ----------
    holds : callable
        Whether a path looks like such files, judged by the beginnings of some. Links out of ``within`` are
        not followed.
    read : callable
        Returns their recording, converting what changed; ``progress`` is that of :func:`megalens.open`.
        Raises ``ClientError``.
    """

    holds: _Holds
    read: _Reads


def foreign_files(
    version: str,
    find: Callable[..., list[Path]],
    begins_like_one: Callable[[Path], object],
    read: Callable[[Path, Sequence[Path], Progress | None], ForeignRows],
    looked_at: int,
) -> ForeignFiles:
    """Return how files of one tool are opened, one of each process; changed ones are read anew.

    ``find`` takes a path and ``within``, and returns the files there that may be such, of which the first
    ``looked_at`` are asked for their beginning. ``read`` takes the path and all of them. ``version`` is that
    of :func:`cached_recording`.
    """

    def holds(path: Path, within: Path | None = None) -> bool:
        return any(map(begins_like_one, find(path, within=within)[:looked_at]))

    def recording(path: Path, progress: Progress | None = None, within: Path | None = None) -> RunFolder:
        files = find(path, within=within)
        return cached_recording(path, files, version, lambda: read(path, files, progress))

    return ForeignFiles(holds, recording)


class ForeignRows(NamedTuple):
    """What was read: ``origin`` of ``run.json``, tables by stream with rows by step, what is missing."""

    origin: Mapping[str, Any]
    streams: Mapping[str, Iterable[pa.Table]]
    problems: Sequence[str] = ()


def foreign_recording(
    path: Path, progress: Progress | None = None, within: Path | None = None
) -> RunFolder | None:
    """Return the recording of files that some reader opens; None where none does."""
    of_slices = (each.opens for each in find_slices())
    listed = ([opens] if isinstance(opens, str) else opens for opens in of_slices if opens)
    for reader in (*chain.from_iterable(listed), *_READERS):
        files: ForeignFiles = load(reader)
        if files.holds(path, within):
            return files.read(path, progress, within)
    return None


def head_of(file: Path, count: int) -> bytes:
    """Return the first bytes of a file; none where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(count)
    except OSError:
        return b""


def files_within(path: Path, name: re.Pattern[str], within: Path | None = None) -> list[Path]:
    """Return the file itself, or those in a folder that ``name`` finds, by name, all in ``within``.

    Nothing is opened. Raises ``ClientError`` for a folder of more files than are read.
    """
    try:
        entries = (
            [path]
            if path.is_file()
            else sorted(
                entry
                for entry in path.iterdir()
                if name.search(entry.name) and not entry.name.startswith(".") and entry.is_file()
            )
        )
        inside = [entry for entry in entries if within is None or entry.resolve().is_relative_to(within)]
    except OSError:
        return []
    if len(inside) > _MOST_FILES:
        raise ClientError(
            f"{shown_text(path.name, 200)} holds {len(inside)} files, and at most {_MOST_FILES} are read.",
            code="too-large",
        )
    return inside


def scalar_tables(columns: Sequence[Any], names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield rows of ``scalars`` from arrays by step: step, time in s, rank, number of the name, value."""
    import pyarrow as pa

    schema = stream_schema("scalars")
    texts = pa.array(names, pa.string())
    for begin in range(0, len(columns[0]), _ROWS):
        step, time, rank, name, value = (pa.array(each[begin : begin + _ROWS]) for each in columns)
        units = pa.repeat("", len(step))
        found = {
            "step": step,
            "time": time,
            "rank": rank,
            "name": texts.take(name),
            "value": value,
            "unit": units,
        }
        yield pa.table({each.name: found[each.name].cast(each.type) for each in schema}, schema=schema)


def cached_recording(
    path: Path, files: Sequence[Path], version: str, read: Callable[[], ForeignRows]
) -> RunFolder:
    """Return what the cache has of ``files`` as they are now, or ``read`` it.

    ``version`` changes when the same files give other rows. Raises ``ClientError`` for files that cannot be
    read; what ``read`` raises is passed on, and leaves nothing behind.
    """
    from .moments.rows.import_folder import cache_folder, locked, trim_cache
    from .run_folder import RunFolder

    try:
        # By names and times of the files, not by their content: that may be gigabytes.
        stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        mark = hashlib.sha256(repr((version, str(path.resolve()), stamps)).encode()).hexdigest()
        folder = cache_folder() / mark[:2] / mark
        with locked(folder):
            if not (folder / "run.json").is_file():
                _write(folder, f"{version.split()[0]}-{mark[:16]}", path, read(), files)
            (folder / "used").touch()
    except OSError as error:
        raise ClientError(f"{path.name} cannot be read: {error.strerror}.", code="unreadable") from error
    trim_cache(folder)
    return RunFolder(folder)


def _write(folder: Path, run_id: str, path: Path, rows: ForeignRows, files: Sequence[Path]) -> None:
    import pyarrow as pa

    written = max(file.stat().st_mtime for file in files)
    try:
        streams = {name: _written(folder, name, tables) for name, tables in rows.streams.items()}
        streams = {name: facts for name, facts in streams.items() if facts["rows"]}
        first_step = min((facts["first_step"] for facts in streams.values()), default=1)
        warnings = [
            {
                "step": first_step,
                "time": written,
                "who": "reader",
                "action": "warning",
                "detail": json.dumps({"text": text[:_MOST_PROBLEM]}),
            }
            for text in rows.problems[:_MOST_PROBLEMS]
        ]
        if warnings:
            _written(folder, "audit", [pa.Table.from_pylist(warnings, schema=stream_schema("audit"))])
        header: dict[str, Any] = {
            "format": 2,
            "run": {"id": run_id, "name": shown_text(path.name, 200), "started": written},
            "state": "finished",
            "ended": written,
            "origin": dict(rows.origin),
            "flags": [],
            "versions": {},
            "streams": streams,
            "missing_steps": [],
        }
        # The recording is one from here on.
        replace_file(folder / "run.json", json.dumps(header).encode())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _written(folder: Path, stream: str, tables: Iterable[pa.Table]) -> dict[str, int]:
    """Write the one segment of a stream, and return what ``run.json`` says of it."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    (folder / stream).mkdir(exist_ok=True)
    half = folder / stream / "half"
    rows, steps = 0, [0, 0]
    with pq.ParquetWriter(half, stream_schema(stream), compression="zstd") as file:
        for table in tables:
            if not table.num_rows:
                continue
            least, most = (int(pc.min_max(table["step"])[end].as_py()) for end in ("min", "max"))
            steps = [least, most] if not rows else [min(least, steps[0]), max(most, steps[1])]
            rows += table.num_rows
            file.write_table(table)
    if rows:
        half = half.rename(folder / stream / segment_name(0, steps[0], ".parquet"))
    else:
        shutil.rmtree(folder / stream)
    size = half.stat().st_size if rows else 0
    return {"rows": rows, "bytes": size, "first_step": steps[0], "last_step": steps[1]}
