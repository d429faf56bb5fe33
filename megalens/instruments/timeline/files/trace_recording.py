"""Traces of other tools as a recording: read once, kept in the cache, and then like any run."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ....protocol import replace_file, stream_schema
from ....runs.errors import ClientError
from ....runs.foreign_files import ForeignFiles
from ....runs.moments.rows.cache_folder import cache_folder, locked, trim_cache
from ....runs.run_folder import RunFolder
from .megascan_files import TimelineError

if TYPE_CHECKING:
    from .trace_folder import Progress, Traces

__all__ = ["TRACES", "holds_traces", "trace_recording"]

_VERSION = 3
"""Rises when the same files give other rows."""
_LOOKED_AT = 20
_MOST_TOLD = 200


def holds_traces(path: Path, within: Path | None = None) -> bool:
    """Return whether a file or folder looks like traces of several ranks. Only the beginnings of some files are read."""
    from .trace_events import TraceFile
    from .trace_folder import trace_files

    try:
        files = trace_files(path, within)
    except TimelineError:
        return False
    for file in files[:_LOOKED_AT]:
        try:
            if TraceFile(file).head():
                return True
        except TimelineError:
            continue
    return False


def trace_recording(path: Path, progress: Progress | None = None, within: Path | None = None) -> RunFolder:
    """Return the recording of a trace or a folder of traces; files are read where they changed since.

    Parameters
    ----------
    path : pathlib.Path
    progress : callable, optional
        Called with (bytes done, bytes in all, what is being done); raise from it to cancel.
    within : pathlib.Path, optional
        Links that lead out of this folder are not followed.

    Raises
    ------
    ClientError
        When they cannot be read or are of several jobs.
    """
    from .trace_folder import read_traces, trace_files

    try:
        files = trace_files(path, within)
        # What lies there and when it was written, not what is in it: that may be gigabytes.
        stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        mark = hashlib.sha256(repr((_VERSION, str(path.resolve()), stamps)).encode()).hexdigest()
        folder = cache_folder() / mark[:2] / mark
        with locked(folder):
            if not (folder / "run.json").is_file():
                _write(folder, mark, path, read_traces(path, files, progress), files)
            (folder / "used").touch()
    except TimelineError as error:
        raise ClientError(str(error), code="unreadable") from error
    except OSError as error:
        raise ClientError(f"{path.name} cannot be read: {error.strerror}.", code="unreadable") from error
    trim_cache(folder)
    return RunFolder(folder)


TRACES = ForeignFiles(holds_traces, trace_recording)


def _write(folder: Path, mark: str, path: Path, traces: Traces, files: list[Path]) -> None:
    import pyarrow.parquet as pq

    written = max(file.stat().st_mtime for file in files)
    steps = traces.table["step"].to_numpy()
    try:
        pq.write_table(traces.table, folder / "spans.parquet", compression="zstd", row_group_size=1 << 16)
        warnings = [
            {
                "step": int(steps[0]),
                "time": written,
                "who": "reader",
                "action": "warning",
                "detail": json.dumps({"text": text[:500]}),
            }
            for text in traces.problems[:_MOST_TOLD]
        ]
        if warnings:
            pq.write_table(
                pa.Table.from_pylist(warnings, schema=stream_schema("audit")), folder / "audit.parquet"
            )
        header: dict[str, Any] = {
            "format": 2,
            "run": {"id": f"trace-{mark[:16]}", "name": path.name, "started": written},
            "state": "finished",
            "ended": written,
            "origin": {"kind": "trace", "name": traces.tool, "steps": "counted"},
            "flags": [],
            "versions": {},
            "streams": {
                "spans": {
                    "rows": len(traces.table),
                    "bytes": (folder / "spans.parquet").stat().st_size,
                    "first_step": int(steps[0]),
                    "last_step": int(steps[-1]),
                }
            },
            "missing_steps": [],
        }
        # The recording is one from here on.
        replace_file(folder / "run.json", json.dumps(header).encode())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
