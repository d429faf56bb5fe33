"""Sources of a run's rows: its recording, memory, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa

from ..protocol import STREAMS, Streams
from .query import Query
from .run_folder import RunFolder
from .status import RunStatus

if TYPE_CHECKING:
    from .answers.selection import StreamRows
    from .moments import MomentSource

_CHUNK_ROWS = 500_000


class _RowsRun(Protocol):
    @property
    def has_streams(self) -> bool: ...
    @property
    def live(self) -> bool: ...
    @property
    def status(self) -> RunStatus: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def moment_source(self) -> MomentSource: ...
    @property
    def _streams(self) -> Streams: ...
    @property
    def _own_rows(self) -> StreamRows | None: ...
    def _received(self, stream: str, query: Query) -> pa.Table: ...


class ReceivedRows:
    """The rows of a live run: recorded ones where this machine has them, and the newer ones in memory."""

    def __init__(self, run: _RowsRun) -> None:
        self._run = run
        folder = run.folder
        has_one = folder is not None and (folder / "run.json").is_file()
        self._recorded = RunFolder(folder) if folder is not None and has_one else None

    @property
    def missing_steps(self) -> list[list[int]]:
        return [] if self._recorded is None else self._recorded.missing_steps

    @property
    def streams(self) -> Streams:
        return self._run._streams

    def batches(
        self, stream: str, query: Query | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of a stream: recorded ones, then those in memory alone."""
        query = query or Query()
        if self._recorded is not None and stream in self._recorded.streams:
            newest = self._recorded.newest_step(stream)
            # What is recorded from now on is in memory, too.
            yield from self._recorded.batches(stream, query.before(newest + 1), columns)
            if query.last is not None and query.last <= newest:
                return
            query = replace(query, first=max(newest + 1, query.first or newest + 1))
        table = self._run._received(stream, query)
        yield from (table if columns is None else table.select(columns)).to_batches()


def rows_of(run: _RowsRun) -> StreamRows:
    """Return the source of a run's rows: its recording, which may grow, or memory without one."""
    if not run.has_streams:
        from .answers.selection import NoRows

        return NoRows()
    if (own := run._own_rows) is not None:
        return own
    failed = run.live and run.status.get("recording", {}).get("state") == "failed"
    if run.folder is not None and not failed and (run.folder / "run.json").is_file():
        return RunFolder(run.folder)
    return ReceivedRows(run)


def all_rows(run: _RowsRun) -> StreamRows:
    """Return the source of a run's rows, as :func:`rows_of` does, also for files of statistics."""
    return rows_of(run) if run.has_streams else _StatisticsRows(run.moment_source)


class _StatisticsRows:
    """Statistics of another logger, as the stream ``moments`` ordered by step, and no other stream."""

    streams = Streams([STREAMS["moments"]])
    missing_steps: ClassVar[list[list[int]]] = []

    def __init__(self, source: MomentSource) -> None:
        source.refresh()
        self._source = source

    def batches(
        self, stream: str, query: Query | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        query = query or Query()
        index = self._source.index()
        stats = [stat["stat"] for stat in index["stats"]]
        names = pa.array(index["names"], pa.utf8())
        first = max(query.first or 0, min((stat["first"] for stat in index["stats"]), default=0))
        last = max((stat["last"] for stat in index["stats"]), default=-1)
        last = last if query.last is None else min(last, query.last)
        rows = sum(stat["rows"] / (stat["last"] - stat["first"] + 1) for stat in index["stats"])
        steps = max(1, int(_CHUNK_ROWS / max(rows, 1)))
        for begin in range(first, last + 1, steps):
            table = self._source.rows(stats, steps=(begin, min(begin + steps - 1, last)))
            at = table.schema.get_field_index("name_id")
            table = table.set_column(at, "name", names.take(table["name_id"].combine_chunks()))
            table = query.filter(table.cast(self.streams.named(stream).schema))
            yield from (table if columns is None else table.select(columns)).to_batches()
