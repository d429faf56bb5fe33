"""The base of the endpoints that the reading process answers, those of slices too."""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from tornado.web import HTTPError

from ..json_requests import JsonRequests
from .between import RUNS_HEADER
from .served_runs import ServedRuns

ARROW = "application/vnd.apache.arrow.stream"
_T = TypeVar("_T")


class ReadHandler(JsonRequests):
    """An endpoint that reads files. The Jupyter server has checked who asks, and passed the request on.

    ``cancelled`` is set once nobody waits for the answer any more.
    """

    def initialize(self) -> None:
        self.cancelled = threading.Event()
        self._without_memory = False

    def prepare(self) -> None:
        """Refuse whoever is not the Jupyter server, and take from it where the run is."""
        self.settings["wear"].began()
        expected = f"token {self.settings['token']}".encode()
        if not hmac.compare_digest(self.request.headers.get("Authorization", "").encode(), expected):
            raise HTTPError(401)
        self.runs.found(json.loads(self.request.headers.get(RUNS_HEADER, "{}")))

    @property
    def runs(self) -> ServedRuns:
        runs: ServedRuns = self.settings["runs"]
        return runs

    def on_connection_close(self) -> None:
        """Stop the worker: nobody reads its answer."""
        self.cancelled.set()

    def on_finish(self) -> None:
        self.settings["wear"].finished(self._without_memory)

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """Notice where memory was not enough, which a bound of an answer that was reached is not."""
        self._without_memory = isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)
        super().log_exception(kind, error, trace)

    async def in_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run file work in a worker thread."""
        return await self._run("files", work, *arguments)

    async def alone(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run work that may take a gigabyte or half a minute, one at a time: it waits for itself only."""
        return await self._run("heavy", work, *arguments)

    async def _run(self, name: str, work: Callable[..., _T], *arguments: Any) -> _T:
        executor: Executor = self.settings[name]
        return await asyncio.get_running_loop().run_in_executor(executor, work, *arguments)

    def send(self, body: bytes | str, kind: str) -> None:
        """End the answer with a body of a media type."""
        self.set_header("Content-Type", kind)
        self.finish(body)


class NoEndpoint(ReadHandler):
    """Every other address."""

    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404)
