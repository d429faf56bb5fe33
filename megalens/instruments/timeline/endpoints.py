"""What the reading process answers of the spans of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...server.reader.read_handler import ReadHandler
from .pipeline_answer import read_pipeline
from .timeline_answer import draft_timeline, read_timeline


class _SpansHandler(ReadHandler):
    def _of(self, answer: Callable[..., Any], run_id: str, request: Mapping[str, Any]) -> Any:
        return answer(self.runs.rows(run_id), request, run_id, self.cancelled)


class TimelineHandler(_SpansHandler):
    """``runs/{id}/timeline``: the spans of a recorded run for a picture, and the verdict."""

    async def post(self, run_id: str) -> None:
        """Answer lanes, verdict and slow ranks, or lanes alone where a draft will do."""
        body = self.json_body()
        answer: Any = None
        if body.get("draft"):
            answer = await self.in_thread(self._of, draft_timeline, run_id, body)
        if answer is None:
            answer = await self.alone(self._of, read_timeline, run_id, body)
        self.answer(answer)


class PipelineHandler(_SpansHandler):
    """``runs/{id}/pipeline``: measured steps of one pipeline of a recorded run."""

    async def post(self, run_id: str) -> None:
        self.answer(await self.alone(self._of, read_pipeline, run_id, self.json_body()))


ENDPOINTS = (("timeline", TimelineHandler), ("pipeline", PipelineHandler))
