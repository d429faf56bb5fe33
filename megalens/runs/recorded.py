"""A run read from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ..protocol import LAST_STEP, Streams, attempt_folders
from ..protocol.messages_generated import Status
from .dask_engine import DaskEngine, each_on
from .errors import ClientError, as_int
from .query import Query
from .run import ReadRun, Run
from .run_folder import RunFolder
from .run_words import lacking_words
from .status import RunStatus

if TYPE_CHECKING:
    from .moments import MomentSource


# The earlier attempts of a run whose training went back to a checkpoint: each can be opened as a run of its
# own.
def earlier_attempts(folder: Path | None) -> list[Run]:
    found: list[Run] = []
    for attempt in [] if folder is None else attempt_folders(folder):
        with suppress(ClientError):
            found.append(RecordedRun(RunFolder(attempt)))
    return found


def rows_before(folder: Path, stream: str, query: Query) -> list[pa.Table]:
    """Return the matching rows of steps before a folder's newest attempt; nothing where unreadable."""
    found: list[pa.Table] = []
    if attempt_folders(folder):
        with suppress(ClientError, OSError):
            for part, until in RunFolder(folder).earlier:
                if stream in part.streams:
                    found.append(part.read(stream, query.before(until)))
    return found


def with_recorded(folder: Path, stream: str, query: Query, received: pa.Table) -> pa.Table:
    """Return the matching rows of a recording that grows, then the received ones that it does not have yet.

    Rows are compared by their columns of text and whole numbers. Raises ``ClientError`` or ``OSError``.
    """
    run = RunFolder(folder)
    if stream not in run.streams:
        return received
    recorded = run.read(stream, query)
    keys = [
        field.name
        for field in recorded.schema
        if pa.types.is_string(field.type) or pa.types.is_integer(field.type)
    ]
    rows = pa.array(range(received.num_rows), pa.int64())
    fresh = received.select(keys).append_column("of received", rows)
    fresh = fresh.join(recorded.select(keys), keys, join_type="left anti")
    return pa.concat_tables([recorded, received.take(fresh["of received"].sort())])


def lacking_here(missing: Sequence[Sequence[int]], query: Query) -> str | None:
    """Return a sentence on the steps of a query that a recording lacks; None where it lacks none of them."""
    first, last = query.first or 0, LAST_STEP if query.last is None else query.last
    here = [[max(low, first), min(high, last)] for low, high in missing if low <= last and high >= first]
    return lacking_words(here) if here else None


def run_of_attempt(folder: Path) -> Path:
    """Return the run folder that an attempt's folder belongs to, or the folder itself."""
    run = folder.parent.parent
    is_attempt = folder.parent.name == "attempts" and (run / "run.json").is_file()
    return run if is_attempt and folder.name in {attempt.name for attempt in attempt_folders(run)} else folder


class RecordedRun(ReadRun):
    """A recorded run. Rows are read when asked for, and only those that are asked for."""

    def __init__(self, folder: RunFolder, engine: DaskEngine | None = None) -> None:
        self._folder = folder
        self._engine = engine
        self._hello = folder.hello()
        self._status: Status | None = None

    @property
    def status(self) -> RunStatus:
        """What the recording says of the run's end. The first call scans a stream that was cut short."""
        if self._status is None:
            self._status = self._folder.status()
        return RunStatus(self._status)

    @property
    def warnings(self) -> list[str]:
        return list(self.status.get("warnings", []))

    @property
    def truncated(self) -> list[str]:
        """Streams whose file was cut short; they are read up to their last complete message."""
        return self._folder.truncated()

    @property
    def folder(self) -> Path | None:
        return self._folder.path

    @property
    def attempts(self) -> list[Run]:
        return earlier_attempts(self.folder)

    def wait(self, step: int | None = None, timeout: float | None = None) -> int:
        step = None if step is None else as_int(step, "step")
        if step is not None and step <= self.step:
            return self.step
        wanted = "another step" if step is None else f"step {step}"
        raise ClientError(
            f"This run is recorded and ends at step {self.step}: {wanted} will not come.", code="closed"
        )

    def _moments(self) -> MomentSource:
        from .moments import MomentSource, RecordedRows

        return MomentSource(RecordedRows(self._folder.path, each_on(self._engine)), self._engine)

    @property
    def _streams(self) -> Streams:
        return self._folder.streams

    def _read(self, stream: str, query: Query) -> pa.Table:
        return self._folder.read(stream, query)

    def _not_kept(self, stream: str, query: Query) -> str | None:
        return lacking_here(self._folder.missing_steps, query)
