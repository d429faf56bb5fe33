"""The list of runs, one run, its index and its streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from ..protocol import ScalarsRequest, StreamRequest, TrendRequest, check_request
from ..runs import ClientError, Run, connect, open_run
from ..runs.answers import (
    SelectedRows,
    StreamQuery,
    read_selection,
    scalar_lines,
    tensor_index,
    tensor_lines,
)
from ..runs.statistics_run import StatisticsRun
from ..runs.tensor_index import FlagEntry
from .base_handler import MegalensHandler
from .errors import ServerError
from .moment_pool import MomentPool

ARROW = "application/vnd.apache.arrow.stream"

_Post = TypeVar("_Post", bound=Callable[..., Any])
_to_read = cast("Callable[[_Post], _Post]", authorized("read"))
"""Lets in who may read: a request for rows is a POST for its body alone."""

_TYPES = {"html": "text/html; charset=utf-8", "ipynb": "application/x-ipynb+json"}


# Freezing views of a run into a file.
class ReportHandler(MegalensHandler):
    """``megalens/api/runs/{id}/report``."""

    @authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        body = self.json_body()
        kind = body.get("format", "html")
        views, title = body.get("views"), body.get("title")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise ServerError(400, "bad-parameter", "format must be html or ipynb.", "format")
        if not isinstance(views, list) or not 1 <= len(views) <= 100:
            raise ServerError(400, "bad-parameter", "views must be a list of 1 to 100 views.", "views")
        if title is not None and (not isinstance(title, str) or len(title) > 500):
            raise ServerError(400, "bad-parameter", "title must be text of at most 500 characters.", "title")
        unknown = set(body) - {"format", "views", "title"}
        if unknown:
            raise ServerError(
                400, "bad-parameter", f"A report has no {min(unknown)!r:.100}.", min(unknown)[:100]
            )
        name, content = await self.in_thread(self._build, run_id, kind, views, title)
        self.set_attachment_header(name)
        self.finish(content, set_content_type=_TYPES[kind])

    def _build(self, run_id: str, kind: str, views: list[Any], title: str | None) -> tuple[str, bytes]:
        from ..pictures.report import ReportError, build_report

        with self._run(run_id) as run:
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.name).strip("-.") or run_id
            try:
                content = build_report(run, views, title=title, format=kind, others=self._other)
            except ReportError as error:
                field = getattr(error, "field", None)
                raise ServerError(400, "bad-parameter", str(error), field) from error
        return f"{name}.{kind}", content

    def _other(self, run_id: str) -> Run | None:
        try:
            return self._run(run_id)
        except (ServerError, ClientError):
            # The report says that it is missing.
            return None

    def _run(self, run_id: str) -> Run:
        target = self.registry.hub(run_id)
        if target is not None:
            return connect(target.address, token=target.token)
        statistics = self.registry.statistics.get(run_id)
        if statistics is not None:
            return StatisticsRun(statistics.tree)
        return open_run(self.registry.folder(run_id).path)


class RunsHandler(MegalensHandler):
    """``megalens/api/runs``."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(await self.in_thread(self.registry.listing))
        if self.registry.records():
            # Who sees the list may choose that run next.
            pool: MomentPool = self.settings["megalens_moments"]
            pool.warm_up()


class SummariesHandler(MegalensHandler):
    """``megalens/api/summaries``."""

    @authenticated
    @authorized
    async def get(self) -> None:
        """Answer the further columns of the table of runs."""
        self.answer({"runs": await self.in_thread(self.registry.summaries)})


class RunHandler(MegalensHandler):
    """``megalens/api/runs/{id}``."""

    @authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        """Answer a recorded run's description, or the entry of a live run or one without a recording."""
        self.answer(await self.in_thread(self._describe, run_id))

    @authenticated
    @authorized
    async def patch(self, run_id: str) -> None:
        body = self.json_body()
        unknown = set(body) - {"name", "notes", "tags"}
        if unknown or not body:
            raise ServerError(
                400,
                "bad-parameter",
                "The body must be {name, notes, tags}, at least one of them and nothing else.",
                min(unknown, default="name")[:100],
            )
        self.answer(await self.in_thread(self.registry.describe, run_id, body))

    @authenticated
    @authorized
    async def delete(self, run_id: str) -> None:
        self.answer({"gone": await self.in_thread(self.registry.delete, run_id)})

    def _describe(self, run_id: str) -> dict[str, Any]:
        entry = self.registry.entry(run_id)
        if entry["state"] == "live":
            return entry
        statistics = self.registry.statistics.get(run_id)
        if statistics is not None:
            status = statistics.status(entry["step"] or 0)
            hello = statistics.hello(entry["name"])
            return {"hello": hello, "status": status, "truncated": [], "kind": "statistics"}
        try:
            folder = self.registry.folder(run_id)
        except ServerError as error:
            # It was live a moment ago and has no folder that could be read (yet).
            if error.status == 404:
                return {**entry, "state": "gone"}
            raise
        hello = folder.hello()
        hello["run"] = {**hello["run"], "name": entry["name"]}
        return {"hello": hello, "status": folder.status(), "truncated": folder.truncated()}


class IndexHandler(MegalensHandler):
    """``megalens/api/runs/{id}/index``."""

    @authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        self.answer({"tensors": await self.in_thread(self._index, run_id)})

    def _index(self, run_id: str) -> list[FlagEntry]:
        return tensor_index(self.registry.rows(run_id), self.cancelled)


class LinesHandler(MegalensHandler):
    """``megalens/api/runs/{id}/lines/tensors`` and ``…/lines/scalars``: thinned lines."""

    @authenticated
    @_to_read
    async def post(self, run_id: str, stream: str) -> None:
        body = await self.in_thread(self._read, run_id, stream, self.json_body())
        self.finish(body, set_content_type=ARROW)

    def _read(self, run_id: str, stream: str, body: dict[str, Any]) -> bytes:
        if stream == "tensors":
            trend = check_request(TrendRequest, body)
            return bytes(tensor_lines(self.registry.rows(run_id), trend, self.cancelled))
        scalars = check_request(ScalarsRequest, body)
        return bytes(scalar_lines(self.registry.rows(run_id), scalars, self.cancelled))


class StreamHandler(MegalensHandler):
    """``megalens/api/runs/{id}/streams/{stream}``."""

    @authenticated
    @_to_read
    async def post(self, run_id: str, stream: str) -> None:
        request = check_request(StreamRequest, self.json_body())
        selection = await self.in_thread(self._read, run_id, stream, request)
        if selection.every > 1:
            self.set_header("X-Megalens-Sampled-Every", str(selection.every))
        self.finish(selection.body.to_pybytes(), set_content_type=ARROW)

    def _read(self, run_id: str, stream: str, request: StreamRequest) -> SelectedRows:
        rows = self.registry.rows(run_id)
        asked = StreamQuery.of(rows.streams, stream, request, self.settings["megalens_limit_bytes"])
        return read_selection(rows, asked, self.cancelled)
