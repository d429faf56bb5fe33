"""What the Jupyter server answers of the spans of a run."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from ...server.base_handler import MegalensHandler
from .pipeline_answer import read_pipeline
from .timeline_answer import draft_timeline, read_timeline


class TimelineHandler(MegalensHandler):
    """``megalens/api/runs/{id}/timeline``: the spans of a recorded run for a picture, and the verdict."""

    @authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        """Answer lanes, verdict and slow ranks, or lanes alone where a draft will do."""
        body = self.json_body()
        answer = await self.in_thread(self._draft, run_id, body) if body.get("draft") else None
        if answer is None:
            # One at a time: each may take a gigabyte.
            executor: Executor = self.settings["megalens_counting"]
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(executor, self._read, run_id, body)
        self.answer(answer)

    def _draft(self, run_id: str, request: dict[str, Any]) -> dict[str, Any] | None:
        return draft_timeline(self.registry.rows(run_id), request, run_id, self.cancelled)

    def _read(self, run_id: str, request: dict[str, Any]) -> dict[str, Any]:
        return read_timeline(self.registry.rows(run_id), request, run_id, self.cancelled)


class PipelineHandler(MegalensHandler):
    """``megalens/api/runs/{id}/pipeline``: measured steps of one pipeline of a recorded run."""

    @authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        # One at a time, as timelines: it reads the same rows.
        executor: Executor = self.settings["megalens_counting"]
        self.answer(
            await asyncio.get_running_loop().run_in_executor(executor, self._read, run_id, self.json_body())
        )

    def _read(self, run_id: str, request: dict[str, Any]) -> dict[str, Any]:
        return read_pipeline(self.registry.rows(run_id), request, run_id, self.cancelled)


ENDPOINTS = (("timeline", TimelineHandler), ("pipeline", PipelineHandler))
