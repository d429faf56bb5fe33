"""The earlier attempts of a run whose training went back to a checkpoint: each can be opened as a run of its own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ..protocol import attempt_folders
from .errors import ClientError
from .query import Query
from .run_folder import RunFolder

if TYPE_CHECKING:
    from .run import Run

__all__ = ["earlier_attempts", "rows_before", "run_of_attempt"]


def earlier_attempts(folder: Path | None) -> list[Run]:
    """Return the earlier attempts in a run folder, oldest first."""
    from .recorded import RecordedRun

    found: list[Run] = []
    for place in [] if folder is None else attempt_folders(folder):
        with suppress(ClientError):
            found.append(RecordedRun(RunFolder(place)))
    return found


def rows_before(folder: Path, stream: str, query: Query) -> list[pa.Table]:
    """Return the rows of a stream that match and are of steps before the newest attempt in a run folder; nothing where that cannot be read."""
    found: list[pa.Table] = []
    if attempt_folders(folder):
        with suppress(ClientError, OSError):
            for part, until in RunFolder(folder).earlier:
                if stream in part.streams:
                    found.append(part.read(stream, query.before(until)))
    return found


def run_of_attempt(folder: Path) -> Path:
    """Return the folder of the run that an attempt's folder is of; itself where it is none of an attempt."""
    run = folder.parent.parent
    is_attempt = folder.parent.name == "attempts" and (run / "run.json").is_file()
    return run if is_attempt and folder.name in {place.name for place in attempt_folders(run)} else folder
