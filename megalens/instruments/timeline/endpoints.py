"""What the reading process answers of the spans of a run."""

from __future__ import annotations

from typing import Any

from ...server.reader.read_handler import ReadHandler
from .pipeline_answer import read_pipeline
from .timeline_answer import draft_timeline, read_timeline


class TimelineHandler(ReadHandler):
    """``runs/{id}/timeline``: the spans of a recorded run for a picture, and the verdict."""

    async def post(self, run_id: str) -> None:
        """Answer lanes, verdict and slow ranks, or lanes alone where a draft will do."""
        body = self.json_body()
        answer = await self.in_thread(self._draft, run_id, body) if body.get("draft") else None
        if answer is None:
            answer = await self.alone(self._read, run_id, body)
        self.answer(answer)

    def _draft(self, run_id: str, request: dict[str, Any]) -> dict[str, Any] | None:
        return draft_timeline(self.runs.rows(run_id), request, run_id, self.cancelled)

    def _read(self, run_id: str, request: dict[str, Any]) -> dict[str, Any]:
        return read_timeline(self.runs.rows(run_id), request, run_id, self.cancelled)


class PipelineHandler(ReadHandler):
    """``runs/{id}/pipeline``: measured steps of one pipeline of a recorded run."""

    async def post(self, run_id: str) -> None:
        self.answer(await self.alone(self._read, run_id, self.json_body()))

    def _read(self, run_id: str, request: dict[str, Any]) -> dict[str, Any]:
        return read_pipeline(self.runs.rows(run_id), request, run_id, self.cancelled)


ENDPOINTS = (("timeline", TimelineHandler), ("pipeline", PipelineHandler))
