"""All questions of a view, answered alike for a recorded folder, a tree of statistics and a live run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...slices import load, named
from ..errors import ClientError
from ..query import Query
from ..run import Run
from ..run_folder import RunFolder
from ..run_rows import ReceivedRows, rows_of
from ..run_words import lacking_words
from ..tensor_index import FlagEntry
from .lines_answer import arrow_stream, read_lines
from .moment_request import Groups, moment_groups, moment_rows
from .selection import SelectedRows, StreamRows, read_selection, tensor_index
from .stream_query import StreamQuery

__all__ = ["RunAnswers", "answers_of", "rows_of"]

_MOST_BYTES = 64 * 1024 * 1024
_MOST_ROWS = 1_000_000
_MOST_WARNINGS = 20


class RunAnswers:
    """Answers the server's endpoints about one run, without a server. The run stays open."""

    def __init__(
        self,
        run: Run,
        cancelled: threading.Event | None = None,
        limit_bytes: int = _MOST_BYTES,
        limit_rows: int = _MOST_ROWS,
    ) -> None:
        self._run = run
        self._rows = rows_of(run)
        self._cancelled = cancelled or threading.Event()
        self._limit_bytes = limit_bytes
        self._limit_rows = limit_rows

    def detail(self) -> dict[str, Any]:
        """Return the run's ``hello`` and ``status``, and which of its streams were cut short."""
        from ..statistics_run import StatisticsRun

        kind = {"kind": "statistics"} if isinstance(self._run, StatisticsRun) else {}
        return {
            "hello": self._run._hello,
            "status": self._status(),
            "truncated": self._run.truncated,
            **kind,
        }

    def _status(self) -> dict[str, Any]:
        status = dict(self._run.status)
        lacking, warnings = _lacking(self._run, self._rows), status.get("warnings", [])
        if lacking is not None and lacking not in warnings:
            status["warnings"] = [*warnings, lacking][-_MOST_WARNINGS:]
        return status

    def index(self) -> list[FlagEntry]:
        return tensor_index(self._rows, self._cancelled)

    def stream(self, name: str, query: Mapping[str, str]) -> SelectedRows:
        """Return rows of a stream; ``query`` is that of :meth:`StreamQuery.of_texts`."""
        asked = StreamQuery.of_texts(self._rows.streams, name, query, self._limit_bytes)
        return read_selection(self._rows, asked, self._cancelled)

    def lines(self, stream: str, query: Mapping[str, str]) -> memoryview:
        """Return lines of tensors or of scalars: see :func:`read_lines`."""
        return read_lines(self._rows, stream, query, self._run._hello, self._cancelled)

    def moments_index(self) -> dict[str, Any]:
        source = self._run.moment_source
        source.refresh()
        return {**source.index(), "names_from": 0}

    def moments_rows(self, request: Mapping[str, Any]) -> pa.Table:
        return moment_rows(request, self._limit_rows)(self._run.moment_source)

    def moments_groups(self, request: Mapping[str, Any]) -> Groups:
        return moment_groups(request)(self._run.moment_source)

    def answer(self, method: str, body: Mapping[str, Any]) -> tuple[Any, bytes | memoryview]:
        """Answer a question by its name: JSON, and an Arrow stream where rows were asked for."""
        if method == "detail":
            return self.detail(), b""
        if method == "index":
            return self.index(), b""
        if method == "stream":
            selection = self.stream(body["stream"], body["query"])
            return {"every": selection.every}, memoryview(selection.body)
        if method == "lines":
            return None, self.lines(body["stream"], body["query"])
        if method == "moments_index":
            return self.moments_index(), b""
        if method == "moments_rows":
            return None, arrow_stream(self.moments_rows(body["request"]))
        if method == "moments_groups":
            table, groups, steps = self.moments_groups(body["request"])
            return {"groups": groups, "steps": steps}, arrow_stream(table)
        if method in (others := named("answers")):
            found = load(others[method])(self._rows, body["request"], self._run.id, self._cancelled)
            return found, b""
        raise ClientError(f"A run cannot be asked {method!r:.60}.", code="bad-parameter", field="method")


def answers_of(given: Any, error: Callable[[str], Exception], otherwise: str) -> dict[str, RunAnswers]:
    """Return what answers a planner's questions about a run, or a notebook's object around one, by the run's
    id.

    Where ``given`` is neither, raises ``error`` of a sentence that ends with ``otherwise``, what else it
    might have been.
    """
    run = given if isinstance(given, Run) else getattr(given, "run", None)
    if not isinstance(run, Run):
        raise error(
            f"The first argument of plan(…) must be a run, or {otherwise}, got a {type(given).__name__}."
        )
    return {run.id: RunAnswers(run)}


def _lacking(run: Run, rows: StreamRows) -> str | None:
    if isinstance(rows, RunFolder):
        missing = run.status.get("recording", {}).get("missing_steps")
        return lacking_words(missing) if missing else None
    if not isinstance(rows, ReceivedRows):
        return None
    steps = run._read("tensors", Query())["step"]
    first = pc.min(steps).as_py() if len(steps) else None
    if first is None or first <= 1:
        return None
    return (
        f"Of traced tensors only steps {first} to {pc.max(steps).as_py()} are here: the hub and this program "
        "keep the newest, and no recording can be read."
    )
