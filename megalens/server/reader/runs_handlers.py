"""A recorded run's description, index, lines and rows; reports; summaries; files of other tools."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...protocol import (
    MomentGroupsRequest,
    MomentRowsRequest,
    ScalarsRequest,
    StreamRequest,
    TrendRequest,
    check_request,
)
from ...runs import ClientError, Run
from ...runs.answers import (
    SelectedRows,
    StreamQuery,
    moment_groups,
    moment_rows,
    read_selection,
    scalar_lines,
    tensor_index,
    tensor_lines,
)
from ...runs.foreign_files import foreign_recording
from ...runs.tensor_index import FlagEntry
from ..errors import ServerError
from .between import STEP_HEADER, RunPlace
from .memory import give_back_memory
from .moment_pool import MomentPool, SharedMoments
from .read_handler import ARROW, ReadHandler
from .run_summaries import RunSummaries, RunSummary

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
            return bytes(tensor_lines(self.runs.rows(run_id), trend, self.cancelled))
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
        # The name is plain: letters, digits and signs.
        self.set_header("Content-Disposition", f"attachment; filename*=utf-8''{name}")
        self.send(content, _TYPES[kind])

    def _build(self, run_id: str, kind: str, views: list[Any], title: str | None) -> tuple[str, bytes]:
        from ...pictures.report import ReportError, build_report

        with self.runs.run(run_id) as run:
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.name).strip("-.") or run_id
            try:
                content = build_report(run, views, title=title, format=kind, others=self._other)
            except ReportError as error:
                field = getattr(error, "field", None)
                raise ServerError(400, "bad-parameter", str(error), field) from error
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


_MOST_WAIT = 30.0
_OPENING_WAIT = 1.0
# What is written at once is in memory four times: as rows, as their message, and twice on its way out.
_BATCH_ROWS = 1 << 14


class _Handler(ReadHandler):
    """The common base: a run's source, and the answer during its first reading."""

    def initialize(self) -> None:
        super().initialize()
        self.gone = asyncio.Event()

    def on_connection_close(self) -> None:
        self.gone.set()
        super().on_connection_close()

    async def with_source(
        self, run_id: str, wait: float | None, answer: Callable[[SharedMoments], Awaitable[None]]
    ) -> None:
        """Answer from the source of a run, or 202 with the progress of its first reading."""
        pool: MomentPool = self.settings["moments"]
        async with pool.share(run_id) as shared:
            if await shared.opened(_OPENING_WAIT if wait is None else wait, self.gone):
                await answer(shared)
                return
            self.set_status(202)
            self.answer({"progress": {"done": shared.done, "total": max(shared.total, shared.done)}})

    async def stream(self, table: pa.Table) -> None:
        """Send a table as an Arrow stream, a piece at a time."""
        self.set_header("Content-Type", ARROW)
        sink = _ChunkSink()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
                writer.write_batch(batch)
                self.write(sink.take())
                await self.flush()
        self.finish(sink.take())
        # What one answer took, the next one may not need for long.
        give_back_memory()


class MomentsHandler(_Handler):
    """``runs/{id}/moments``."""

    async def get(self, run_id: str) -> None:
        """Answer the index; with ``since`` and ``wait`` once there is more, or 304."""
        since, wait = self.get_query_argument("since", None), self._seconds()

        async def answer(shared: SharedMoments) -> None:
            await shared.refresh()
            known = since is not None and since == shared.version
            if known and not await shared.newer(since or "", wait or 0.0, self.gone):
                self.set_status(304)
                self.finish()
                return
            known_names = shared.names_known(since)
            names = shared.index["names"][known_names:]
            last = max((entry["last"] for entry in shared.index["stats"]), default=None)
            if last is not None:
                # The server notes it for the list of runs.
                self.set_header(STEP_HEADER, str(last))
            self.answer(
                {**shared.index, "version": shared.version, "names_from": known_names, "names": names}
            )

        await self.with_source(run_id, wait, answer)

    def _seconds(self) -> float | None:
        text = self.get_query_argument("wait", None)
        try:
            seconds = None if text is None else float(text)
        except ValueError:
            seconds = -1.0
        if seconds is not None and not 0 <= seconds <= _MOST_WAIT:
            raise ServerError(
                400,
                "bad-parameter",
                f"wait must be seconds from 0 to {_MOST_WAIT:g}, got {text!r:.50}.",
                "wait",
            )
        return seconds


class MomentRowsHandler(_Handler):
    """``runs/{id}/moments/rows``."""

    async def post(self, run_id: str) -> None:
        request = check_request(MomentRowsRequest, self.json_body())
        read = moment_rows(request, self.settings["limit_rows"])

        async def answer(shared: SharedMoments) -> None:
            await self.stream(await shared.ask(read, self.gone))

        await self.with_source(run_id, None, answer)


class MomentGroupsHandler(_Handler):
    """``runs/{id}/moments/groups``."""

    async def post(self, run_id: str) -> None:
        read = moment_groups(check_request(MomentGroupsRequest, self.json_body()))

        async def answer(shared: SharedMoments) -> None:
            table, groups, steps = await shared.ask(read, self.gone)
            self.set_header("X-Megalens-Groups", str(groups))
            self.set_header("X-Megalens-Steps", str(steps))
            await self.stream(table)

        await self.with_source(run_id, None, answer)


class _ChunkSink:
    """A file for an Arrow writer whose bytes are taken as they come."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken
