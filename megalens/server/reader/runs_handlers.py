"""A recorded run's description, index, lines and rows; reports; summaries; files of other tools."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...protocol import ScalarsRequest, StreamRequest, TrendRequest, check_request
from ...runs import ClientError, Run
from ...runs.answers import (
    SelectedRows,
    StreamQuery,
    read_selection,
    scalar_lines,
    tensor_index,
    tensor_lines,
)
from ...runs.foreign_files import foreign_recording
from ...runs.languages import chosen_locale
from ...runs.remote import mirrored
from ...runs.tensor_index import FlagEntry
from ..errors import ServerError, require
from .between import RunPlace
from .read_handler import ARROW, ReadHandler
from .run_summaries import RunSummaries, RunSummary

_STATUS = {"not-found": 404, "bad-parameter": 400, "disconnected": 502}
_TYPES = {"html": "text/html; charset=utf-8", "ipynb": "application/x-ipynb+json"}


class DescriptionHandler(ReadHandler):
    """``runs/{id}``: what a hub would say of a recorded run."""

    async def get(self, run_id: str) -> None:
        self.answer(await self.in_thread(self._describe, run_id))

    def _describe(self, run_id: str) -> dict[str, Any]:
        folder = self.runs.folder(run_id)
        hello = folder.hello()
        hello["run"] = {**hello["run"], "name": self.runs.name(run_id)}
        return {"hello": hello, "status": folder.status(), "truncated": folder.truncated()}


class IndexHandler(ReadHandler):
    """``runs/{id}/index``."""

    async def get(self, run_id: str) -> None:
        self.answer({"tensors": await self.in_thread(self._index, run_id)})

    def _index(self, run_id: str) -> list[FlagEntry]:
        return tensor_index(self.runs.rows(run_id), self.cancelled)


class LinesHandler(ReadHandler):
    """``runs/{id}/lines/tensors`` and ``…/lines/scalars``: thinned lines."""

    async def post(self, run_id: str, stream: str) -> None:
        self.send(await self.in_thread(self._read, run_id, stream, self.json_body()), ARROW)

    def _read(self, run_id: str, stream: str, body: dict[str, Any]) -> bytes:
        if stream == "tensors":
            trend = check_request(TrendRequest, body)
            rows = self.runs.rows(run_id)
            return bytes(tensor_lines(rows, trend, self.cancelled, self.runs.engine(run_id)))
        scalars = check_request(ScalarsRequest, body)
        return bytes(scalar_lines(self.runs.rows(run_id), scalars, self.cancelled))


class StreamHandler(ReadHandler):
    """``runs/{id}/streams/{stream}``."""

    async def post(self, run_id: str, stream: str) -> None:
        request = check_request(StreamRequest, self.json_body())
        selection = await self.in_thread(self._read, run_id, stream, request)
        if selection.every > 1:
            self.set_header("X-Megalens-Sampled-Every", str(selection.every))
        self.send(selection.body.to_pybytes(), ARROW)

    def _read(self, run_id: str, stream: str, request: StreamRequest) -> SelectedRows:
        rows = self.runs.rows(run_id)
        asked = StreamQuery.of(rows.streams, stream, request, self.settings["limit_bytes"])
        return read_selection(rows, asked, self.cancelled)


class ReportHandler(ReadHandler):
    """``runs/{id}/report``: freezing views of a run into a file."""

    async def post(self, run_id: str) -> None:
        body = self.json_body()
        kind = body.get("format", "html")
        views, title = body.get("views"), body.get("title")
        language = body.get("language", "en")
        require(isinstance(kind, str) and kind in _TYPES, "format must be html or ipynb.", "format")
        fits = isinstance(views, list) and 1 <= len(views) <= 100
        require(fits, "views must be a list of 1 to 100 views.", "views")
        fits = title is None or (isinstance(title, str) and len(title) <= 500)
        require(fits, "title must be text of at most 500 characters.", "title")
        fits = isinstance(language, str) and len(language) <= 50
        require(fits, "language must be the name of a language, such as zh-CN.", "language")
        unknown = min(set(body) - {"format", "views", "title", "language"}, default=None)
        require(unknown is None, f"A report has no {unknown!r:.100}.", unknown and unknown[:100])
        name, content = await self.in_thread(self._build, run_id, kind, views, title, language)
        # The name is plain: letters, digits and signs.
        self.set_header("Content-Disposition", f"attachment; filename*=utf-8''{name}")
        self.send(content, _TYPES[kind])

    def _build(
        self, run_id: str, kind: str, views: list[Any], title: str | None, language: str
    ) -> tuple[str, bytes]:
        from ...pictures.report import ReportError, build_report

        with self.runs.run(run_id) as run:
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.name).strip("-.") or run_id
            try:
                # JupyterLab may speak a language that there is no translation into.
                spoken = chosen_locale(language) or "en"
                content = build_report(
                    run, views, title=title, format=kind, others=self._other, language=spoken
                )
            except ReportError as error:
                raise ServerError(400, "bad-parameter", str(error), error.field) from error
        return f"{name}.{kind}", content

    def _other(self, run_id: str) -> Run | None:
        try:
            return self.runs.run(run_id)
        except (ServerError, ClientError):
            # The report says that it is missing.
            return None


class LastLossesHandler(ReadHandler):
    """``summaries``: the further columns of the table of runs, for the runs that the server names."""

    async def post(self) -> None:
        self.answer({"runs": await self.in_thread(self._summaries, json.loads(self.request.body)["runs"])})

    def _summaries(self, places: Mapping[str, RunPlace]) -> dict[str, RunSummary]:
        self.runs.found(places)
        summaries: RunSummaries = self.settings["summaries"]
        found = {}
        for run_id in places:
            try:
                found[run_id] = summaries.of(self.runs.folder(run_id))
            except ServerError:
                # The list of runs says what is wrong with it.
                continue
        return found


class ForeignFilesHandler(ReadHandler):
    """``foreign``: the recording that files of another tool were converted to, or none."""

    async def post(self) -> None:
        body = self.json_body()
        try:
            folder = await self.alone(foreign_recording, Path(body["path"]), None, Path(body["within"]))
        except ClientError as error:
            raise ServerError(409, error.code, error.message, "path") from error
        self.answer({"folder": None if folder is None else str(folder.path)})


class MirrorHandler(ReadHandler):
    """``mirror``: the folder into which streams of a run on other storage are fetched."""

    async def post(self) -> None:
        try:
            folder = await self.in_thread(mirrored, self.json_body()["address"])
        except ClientError as error:
            raise ServerError(_STATUS.get(error.code, 409), error.code, error.message, "path") from error
        self.answer({"folder": str(folder)})
