"""The list of runs, one run, its index and its streams."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from ..client.answers import SelectedRows, StreamQuery, read_selection, tensor_index
from ..protocol import STREAMS, Streams
from .base_handler import MegalensHandler
from .errors import ServerError

__all__ = ["IndexHandler", "RunHandler", "RunsHandler", "StreamHandler"]

ARROW = "application/vnd.apache.arrow.stream"
# What the parameter is called by which a column can be asked for, by how the stream's policy lets it be.
_PARAMETERS = {"equal": "{}", "equal_or_lowest": "{}", "ranges": "{}s", "newest_finite": "measured"}


class RunsHandler(MegalensHandler):
    """``megalens/api/runs``."""

    @authenticated
    @authorized
    async def get(self) -> None:
        """Answer the list of runs, newest first."""
        self.answer(await self.in_thread(self.registry.listing))


class RunHandler(MegalensHandler):
    """``megalens/api/runs/{id}``."""

    @authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        """Answer a recorded run's description, or the entry of a run that is live or left no recording."""
        self.answer(await self.in_thread(self._describe, run_id))

    @authenticated
    @authorized
    async def patch(self, run_id: str) -> None:
        """Rename a run."""
        body = self.json_body()
        if set(body) != {"name"}:
            raise ServerError(400, "bad-parameter", "The body must be {name: …} and nothing else.", "name")
        self.answer(await self.in_thread(self.registry.rename, run_id, body["name"]))

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
        """Answer what a recorded run has of each flag."""
        self.answer({"tensors": await self.in_thread(self._index, run_id)})

    def _index(self, run_id: str) -> list[dict[str, Any]]:
        return tensor_index(self.registry.rows(run_id), self.cancelled)


class StreamHandler(MegalensHandler):
    """``megalens/api/runs/{id}/streams/{stream}``."""

    @authenticated
    @authorized
    async def get(self, run_id: str, stream: str) -> None:
        """Answer the rows that match, as an Arrow stream."""
        texts = {
            name: self.get_query_argument(name, "", strip=name != "part")
            for name in self.request.query_arguments
            # What Jupyter itself reads of any request.
            if name not in ("no_track_activity", "t", "token")
        }
        # Whatever every run may have needs no look at this one.
        streams = STREAMS if stream in STREAMS else await self.in_thread(self._streams, run_id)
        asked = StreamQuery.of_texts(streams, stream, texts, self.settings["megalens_limit_bytes"])
        selection = await self.in_thread(self._read, run_id, asked)
        if selection.every > 1:
            self.set_header("X-Megalens-Sampled-Every", str(selection.every))
        self.finish(selection.body.to_pybytes(), set_content_type=ARROW)

    def _streams(self, run_id: str) -> Streams:
        return self.registry.rows(run_id).streams

    def _read(self, run_id: str, asked: StreamQuery) -> SelectedRows:
        return read_selection(self.registry.rows(run_id), asked, self.cancelled)
