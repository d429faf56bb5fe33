"""The list of runs, one run, its index and its streams."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from ..client import ClientError, Query
from ..protocol import STREAMS, Stream, Streams
from .base_handler import MegalensHandler
from .errors import ServerError
from .selection import no_rows, read_selection, tensor_index

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
        if self.registry.statistics.get(run_id) is not None:
            return []
        return tensor_index(self.registry.folder(run_id), self.cancelled)


class StreamHandler(MegalensHandler):
    """``megalens/api/runs/{id}/streams/{stream}``."""

    @authenticated
    @authorized
    async def get(self, run_id: str, stream: str) -> None:
        """Answer the rows that match, as an Arrow stream."""
        streams = STREAMS if stream in STREAMS else await self.in_thread(self._streams, run_id)
        if stream not in streams:
            known = ", ".join(streams)
            raise ServerError(
                404, "not-found", f"There is no stream {stream!r:.100}. The streams are {known}.", "stream"
            )
        query, limit, lowest = self._query(streams[stream])
        selection = await self.in_thread(self._read, run_id, stream, query, limit, lowest)
        if selection.every > 1:
            self.set_header("X-Megalens-Sampled-Every", str(selection.every))
        self.finish(selection.body.to_pybytes(), set_content_type=ARROW)

    def _streams(self, run_id: str) -> Streams:
        recorded = self.registry.statistics.get(run_id) is None
        return self.registry.folder(run_id).streams if recorded else STREAMS

    def _read(self, run_id: str, stream: str, query: Query, limit: int, lowest: bool) -> Any:
        if self.registry.statistics.get(run_id) is not None:
            return no_rows(stream)
        return read_selection(self.registry.folder(run_id), stream, query, limit, self.cancelled, lowest)

    def _query(self, stream: Stream) -> tuple[Query, int, bool]:
        known = {_PARAMETERS[how].format(column) for column, how in stream.policy.ask.items()}
        known |= {"where", "first", "last", "limit_bytes", "no_track_activity", "t", "token"}
        for name in self.request.query_arguments:
            if name not in known:
                raise ServerError(
                    400,
                    "bad-parameter",
                    f"The stream {stream.name} cannot be asked for {name!r:.100}.",
                    name[:100],
                )
        most: int = self.settings["megalens_limit_bytes"]
        first, last = self._integer("first"), self._integer("last")
        limit = self._integer("limit_bytes")
        if limit is not None and limit < 1:
            raise ServerError(
                400, "bad-parameter", "limit_bytes must be a whole number from 1.", "limit_bytes"
            )
        pass_ = self.get_query_argument("pass", None)
        if pass_ not in (None, "forward", "backward"):
            raise ServerError(
                400, "bad-parameter", f"pass must be forward or backward, and {pass_!r:.50} came.", "pass"
            )
        lowest = self.get_query_argument("rank", None) == "lowest"
        rank = None if lowest else self._integer("rank")
        if rank is not None and rank < 0:
            raise ServerError(
                400, "bad-parameter", f"rank must be 'lowest' or from 0, and {rank} came.", "rank"
            )
        query = Query.of(
            pass_=pass_,
            rank=rank,
            flag=self.get_query_argument("flag", None),
            part=self.get_query_argument("part", None, strip=False),
            phase=self.get_query_argument("phase", None),
            steps=(first, last),
        )
        layers = self.get_query_argument("layers", None)
        if layers is not None:
            query = _with_layers(query, layers)
        query = replace(query, where=_where(self.get_query_argument("where", "{}"), stream))
        query = replace(query, measured=self.get_query_argument("measured", "false") == "true")
        return query, most if limit is None else min(limit, most), lowest

    def _integer(self, name: str) -> int | None:
        text = self.get_query_argument(name, None)
        if text is None:
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 18:
            raise ServerError(
                400, "bad-parameter", f"{name} must be a whole number, and {text!r:.50} came.", name
            )
        return int(text)


def _where(text: str, stream: Stream) -> tuple[tuple[str, str | int], ...]:
    """Return the columns that a stream is asked for by, and what they must equal."""
    try:
        where = json.loads(text)
    except (ValueError, RecursionError):
        where = None
    if not isinstance(where, dict):
        raise ServerError(
            400, "bad-parameter", f"where must be a JSON object, and {text!r:.100} came.", "where"
        )
    for column, value in where.items():
        if stream.policy.ask.get(column) != "equal":
            raise ServerError(
                400,
                "bad-parameter",
                f"The stream {stream.name} cannot be asked for {column!r:.100}.",
                "where",
            )
        text_wanted = pa.types.is_string(stream.schema.field(column).type)
        fits = isinstance(value, str) if text_wanted else type(value) is int and abs(value) < 2**53
        if not fits:
            kind = "text" if text_wanted else "a whole number"
            raise ServerError(
                400, "bad-parameter", f"{column} must be {kind}, and {value!r:.50} came.", "where"
            )
    return tuple(where.items())


def _with_layers(query: Query, layers: str) -> Query:
    try:
        return replace(query, layers=Query.of(layer=layers).layers)
    except ClientError as error:
        raise ServerError(
            400,
            "bad-parameter",
            f"layers must be 'all' or ranges such as '1-4,7', and {layers!r:.100} came.",
            "layers",
        ) from error
