"""All questions of a view, answered alike for a recorded folder, a tree of statistics and a live run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.compute as pc

from ...protocol import (
    MomentGroupsRequest,
    MomentRowsRequest,
    ScalarsRequest,
    StreamRequest,
    TrendRequest,
    check_request,
)
from ...slices import load, named
from ..errors import bad_parameter
from ..query import Query
from ..run import Run
from ..run_folder import RunFolder
from ..run_rows import ReceivedRows, rows_of
from ..run_words import lacking_words
from ..tensor_index import FlagEntry
from .lines_answer import arrow_stream, scalar_lines, tensor_lines
from .moment_request import moment_groups, moment_rows
from .selection import SelectedRows, StreamRows, read_selection, tensor_index
from .stream_query import StreamQuery

__all__ = ["RunAnswers", "answers_of", "rows_of"]

_MOST_BYTES = 64 * 1024 * 1024
_MOST_ROWS = 1_000_000
_MOST_WARNINGS = 20


class RunAnswers:
    """Answers the server's endpoints about one run, without a server. The run stays open."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rows = rows_of(run)
        # Nobody takes a question back here.
        self._cancelled = threading.Event()

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

    def stream(self, name: str, request: StreamRequest) -> SelectedRows:
        """Return rows of a stream."""
        asked = StreamQuery.of(self._rows.streams, name, request, _MOST_BYTES)
        return read_selection(self._rows, asked, self._cancelled)

    def moments_index(self) -> dict[str, Any]:
        source = self._run.moment_source
        source.refresh()
        return {**source.index(), "names_from": 0}

    def answer(self, method: str, body: Mapping[str, Any]) -> tuple[Any, bytes | memoryview]:
        """Answer a question by its name: JSON, and an Arrow stream where rows were asked for.

        Raises ``ProtocolError`` for a request that ``requests.schema.json`` has not.
        """
        request = body.get("request")
        if method == "detail":
            return self.detail(), b""
        if method == "index":
            return self.index(), b""
        if method == "stream":
            selection = self.stream(str(body.get("stream")), check_request(StreamRequest, request))
            return {"every": selection.every}, memoryview(selection.body)
        if method == "tensor_lines":
            asked = check_request(TrendRequest, request)
            return None, tensor_lines(self._rows, asked, self._cancelled, self._run._engine)
        if method == "scalar_lines":
            return None, scalar_lines(self._rows, check_request(ScalarsRequest, request), self._cancelled)
        if method == "moments_index":
            return self.moments_index(), b""
        if method == "moments_rows":
            read_rows = moment_rows(check_request(MomentRowsRequest, request), _MOST_ROWS)
            return None, arrow_stream(read_rows(self._run.moment_source))
        if method == "moments_groups":
            read_groups = moment_groups(check_request(MomentGroupsRequest, request))
            table, groups, steps = read_groups(self._run.moment_source)
            return {"groups": groups, "steps": steps}, arrow_stream(table)
        if method in (others := named("answers")):
            found = load(others[method])(self._rows, request, self._run.id, self._cancelled)
            return found, b""
        raise bad_parameter(f"A run cannot be asked {method!r:.60}.", "method")


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
    steps = run._received("tensors", Query())["step"]
    first = pc.min(steps).as_py() if len(steps) else None
    if first is None or first <= 1:
        return None
    return (
        f"Of traced tensors only steps {first} to {pc.max(steps).as_py()} are here: the hub and this program "
        "keep the newest, and no recording can be read."
    )
