"""Where the rows of a run lie: in its recording, in memory, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ..protocol import Streams
from .answers.selection import NoRows, StreamRows
from .query import Query
from .run_folder import RunFolder
from .status import RunStatus

__all__ = ["ReceivedRows", "rows_of"]


class _RowsRun(Protocol):
    """What is asked of a run for its rows: a part of :class:`megalens.runs.run.Run`."""

    @property
    def has_streams(self) -> bool: ...
    @property
    def live(self) -> bool: ...
    @property
    def status(self) -> RunStatus: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def _streams(self) -> Streams: ...
    def _read(self, stream: str, query: Query) -> pa.Table: ...


class ReceivedRows:
    """The rows of a live run: those of its recording where this machine has one, and the newer ones that are in memory."""

    def __init__(self, run: _RowsRun) -> None:
        self._run = run
        folder = run.folder
        has_one = folder is not None and (folder / "run.json").is_file()
        self._recorded = RunFolder(folder) if folder is not None and has_one else None

    @property
    def missing_steps(self) -> list[list[int]]:
        """Ranges of steps that the recording lacks."""
        return [] if self._recorded is None else self._recorded.missing_steps

    @property
    def streams(self) -> Streams:
        """The streams that the run may have."""
        return self._run._streams

    def batches(
        self, stream: str, query: Query | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows of a stream that match: recorded ones, then those that are in memory alone."""
        query = query or Query()
        if self._recorded is not None and stream in self._recorded.streams:
            newest = self._recorded.newest_step(stream)
            # What is recorded from now on is in memory, too.
            yield from self._recorded.batches(stream, query.before(newest + 1), columns)
            if query.last is not None and query.last <= newest:
                return
            query = replace(query, first=max(newest + 1, query.first or newest + 1))
        table = self._run._read(stream, query)
        yield from (table if columns is None else table.select(columns)).to_batches()


def rows_of(run: _RowsRun) -> StreamRows:
    """Return where the rows of a run lie: in its recording, also while that grows, and in memory where there is none that goes on."""
    if not run.has_streams:
        return NoRows()
    failed = run.live and run.status.get("recording", {}).get("state") == "failed"
    if run.folder is not None and not failed and (run.folder / "run.json").is_file():
        return RunFolder(run.folder)
    return ReceivedRows(run)
