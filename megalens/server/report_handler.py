"""Freezing views of a run into a file."""

from __future__ import annotations

import re
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from ..runs import ClientError, Run, connect, open_run
from ..runs.statistics_run import StatisticsRun
from .base_handler import MegalensHandler
from .errors import ServerError

__all__ = ["ReportHandler"]

_TYPES = {"html": "text/html; charset=utf-8", "ipynb": "application/x-ipynb+json"}


class ReportHandler(MegalensHandler):
    """``megalens/api/runs/{id}/report``."""

    @authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        """Answer the report as an attachment."""
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
            # The report says that it is not there.
            return None

    def _run(self, run_id: str) -> Run:
        target = self.registry.hub(run_id)
        if target is not None:
            return connect(target.address, token=target.token)
        statistics = self.registry.statistics.get(run_id)
        if statistics is not None:
            return StatisticsRun(statistics.tree)
        return open_run(self.registry.folder(run_id).path)
