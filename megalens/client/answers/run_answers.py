"""All that a view asks of a run, answered for a recorded folder, a tree of statistics and a live run alike."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ...protocol import Streams
from ..errors import ClientError
from ..query import Query
from ..run import Run
from ..run_folder import RunFolder
from .moment_request import Groups, moment_groups, moment_rows
from .selection import NoRows, SelectedRows, StreamRows, read_selection, tensor_index
from .stream_query import StreamQuery

__all__ = ["RunAnswers"]

_MOST_BYTES = 64 * 1024 * 1024
_MOST_ROWS = 1_000_000


class RunAnswers:
    """Answers the questions of the Jupyter server's endpoints about one run, without a server.

    Parameters
    ----------
    run : Run
        The run; it is not closed.
    cancelled : threading.Event, optional
        Stops the reading of streams.
    limit_bytes, limit_rows : int
        Bounds of what an answer may hold of a stream, and of the statistics.
    """

    def __init__(
        self,
        run: Run,
        cancelled: threading.Event | None = None,
        limit_bytes: int = _MOST_BYTES,
        limit_rows: int = _MOST_ROWS,
    ) -> None:
        self._run = run
        self._rows = _rows_of(run)
        self._cancelled = cancelled or threading.Event()
        self._limit_bytes = limit_bytes
        self._limit_rows = limit_rows

    def detail(self) -> dict[str, Any]:
        """Return what the run is: its ``hello``, its ``status``, which of its streams were cut short."""
        from ..statistics_run import StatisticsRun

        kind = {"kind": "statistics"} if isinstance(self._run, StatisticsRun) else {}
        return {
            "hello": self._run._hello,
            "status": dict(self._run.status),
            "truncated": self._run.truncated,
            **kind,
        }

    def index(self) -> list[dict[str, Any]]:
        """Return what there is of each flag, phase and pass."""
        return tensor_index(self._rows, self._cancelled)

    def stream(self, name: str, query: Mapping[str, str]) -> SelectedRows:
        """Return rows of a stream; ``query`` is that of :meth:`StreamQuery.of_texts`."""
        asked = StreamQuery.of_texts(self._rows.streams, name, query, self._limit_bytes)
        return read_selection(self._rows, asked, self._cancelled)

    def moments_index(self) -> dict[str, Any]:
        """Return what there is of statistics."""
        source = self._run.moment_source
        source.refresh()
        return {**source.index(), "names_from": 0}

    def moments_rows(self, request: Mapping[str, Any]) -> pa.Table:
        """Return rows of statistics as they travel."""
        return moment_rows(request, self._limit_rows)(self._run.moment_source)

    def moments_groups(self, request: Mapping[str, Any]) -> Groups:
        """Return groups of statistics as they travel."""
        return moment_groups(request)(self._run.moment_source)

    def answer(self, method: str, body: Mapping[str, Any]) -> tuple[Any, bytes | memoryview]:
        """Answer a question by its name: JSON, and an Arrow stream where rows were asked for.

        Raises
        ------
        ClientError
            Naming what is at fault.
        """
        if method == "detail":
            return self.detail(), b""
        if method == "index":
            return self.index(), b""
        if method == "stream":
            selection = self.stream(body["stream"], body["query"])
            return {"every": selection.every}, memoryview(selection.body)
        if method == "moments_index":
            return self.moments_index(), b""
        if method == "moments_rows":
            return None, _arrow_stream(self.moments_rows(body["request"]))
        if method == "moments_groups":
            table, groups, steps = self.moments_groups(body["request"])
            return {"groups": groups, "steps": steps}, _arrow_stream(table)
        raise ClientError(f"A run cannot be asked {method!r:.60}.", code="bad-parameter", field="method")


class _Received:
    """The rows that a live run keeps in memory."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def streams(self) -> Streams:
        return self._run._streams

    def batches(
        self, stream: str, query: Query | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        table = self._run._read(stream, query or Query())
        return iter((table if columns is None else table.select(columns)).to_batches())


def _rows_of(run: Run) -> StreamRows:
    from ..statistics_run import StatisticsRun

    if isinstance(run, StatisticsRun):
        return NoRows()
    if run.folder is not None and not run.live and (run.folder / "run.json").is_file():
        return RunFolder(run.folder)
    return _Received(run)


def _arrow_stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())
