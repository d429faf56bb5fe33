"""Endpoints that the reading process answers: who asks is checked here, where the run is is found here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from jupyter_server.auth.decorator import authorized
from tornado.httputil import HTTPHeaders, RequestStartLine, ResponseStartLine
from tornado.iostream import IOStream, StreamClosedError
from tornado.web import authenticated

from ..protocol import parse_json
from .base_handler import MegalensHandler
from .errors import ServerError
from .reader.between import STEP_HEADER, RunPlace
from .reader.process import Answer, Reader

# What is said of a body that is passed on; all else is for this connection alone.
_PASSED = (
    "Content-Type",
    "Content-Disposition",
    "X-Megalens-Sampled-Every",
    "X-Megalens-Groups",
    "X-Megalens-Steps",
    "X-Megalens-Tasks",
)


_Post = TypeVar("_Post", bound=Callable[..., Any])
_to_read = cast("Callable[[_Post], _Post]", authorized("read"))
"""Lets in who may read: a request for rows is a POST for its body alone."""


class ForwardHandler(MegalensHandler):
    """``megalens/api/runs/{id}/…``: passed on as it was, with where the run is."""

    _stream: IOStream | None = None
    gone = False

    @authenticated
    @authorized
    async def get(self, run_id: str, rest: str = "") -> None:
        await self.forward(run_id, rest)

    @authenticated
    @_to_read
    async def post(self, run_id: str, rest: str = "") -> None:
        await self.forward(run_id, rest)

    async def forward(self, run_id: str, rest: str) -> None:
        """Pass the request on, and the answer back as it comes."""
        body = self.checked_body()
        mentioned = await self.in_thread(self._mentioned, run_id, rest, body)
        reader: Reader = self.settings["megalens_reader"]
        # As it came: what a browser escaped stays escaped.
        path = self.request.uri or ""
        path = path[path.index("/megalens/api/") + len("/megalens/api") :]
        try:
            await reader.tell(
                {"method": self.request.method or "GET", "path": path, "body": body, "runs": mentioned},
                lambda: _Passed(self, run_id),
                self._opened,
            )
        except ServerError:
            if self.gone:
                return
            if not self._headers_written:
                raise
            # Half an answer must not look like a whole one.
            self.detach().close()

    def on_connection_close(self) -> None:
        """Take the question back: nobody reads its answer."""
        self.gone = True
        if self._stream is not None:
            self._stream.close()
        super().on_connection_close()

    def _opened(self, stream: IOStream) -> None:
        self._stream = stream
        if self.gone:
            stream.close()

    def _mentioned(self, run_id: str, rest: str, body: bytes) -> Mapping[str, RunPlace]:
        """Return where the run is, and for a report those that its views may show beside it."""
        places = {run_id: self.registry.place(run_id)}
        if rest == "report":
            with contextlib.suppress(ValueError):
                known = self.registry.run_ids()
                for text in _texts(parse_json(body)):
                    if text in known and text not in places:
                        places[text] = self.registry.place(text)
        return places


class _Passed(Answer):
    """Writes what comes to a browser."""

    def __init__(self, handler: ForwardHandler, run_id: str) -> None:
        self._handler = handler
        self._run_id = run_id

    @property
    def unwanted(self) -> bool:  # type: ignore[override]
        return self._handler.gone

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> None:
        assert isinstance(start_line, ResponseStartLine)
        self._handler.set_status(start_line.code)
        for name in _PASSED:
            if name in headers:
                self._handler.set_header(name, headers[name])
        if STEP_HEADER in headers:
            self._handler.registry.saw(self._run_id, step=int(headers[STEP_HEADER]))

    async def data_received(self, chunk: bytes) -> None:
        self.began = True
        with contextlib.suppress(StreamClosedError):
            self._handler.write(chunk)
            await self._handler.flush()

    def finish(self) -> None:
        super().finish()
        kind = self._handler._headers.get("Content-Type", "application/json")
        self._handler.finish(set_content_type=kind)


def _texts(value: Any) -> list[str]:
    """Return every text in a JSON value."""
    found, left = [], [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
    return found
