"""Statistics of a run: its index, rows, and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from ...protocol import MomentGroupsRequest, MomentRowsRequest, check_request
from ...runs.answers import moment_groups, moment_rows
from ...runs.dask_engine import DaskEngine
from ..errors import require
from .between import STEP_HEADER
from .memory import give_back_memory
from .moment_pool import MomentPool, SharedMoments
from .read_handler import ARROW, ReadHandler

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
            body: dict[str, Any] = {
                **shared.index,
                "version": shared.version,
                "names_from": known_names,
                "names": names,
            }
            if shared.engine is not None:
                body["read_by"] = await self.in_thread(_where, shared.engine)
            self.answer(body)

        await self.with_source(run_id, wait, answer)

    def _seconds(self) -> float | None:
        text = self.get_query_argument("wait", None)
        try:
            seconds = None if text is None else float(text)
        except ValueError:
            seconds = -1.0
        fits = seconds is None or 0 <= seconds <= _MOST_WAIT
        require(fits, f"wait must be seconds from 0 to {_MOST_WAIT:g}, got {text!r:.50}.", "wait")
        return seconds


class MomentTasksHandler(ReadHandler):
    """``runs/{id}/moments/tasks``."""

    async def get(self, run_id: str) -> None:
        """Answer how far an engine is with the question that is being answered; does not wait for it."""
        pool: MomentPool = self.settings["moments"]
        done, of = pool.tasks(run_id)
        self.answer({"done": done, "of": of})


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
            (table, groups, steps), tasks = await shared.ask(
                lambda source: (read(source), source.tasks[1]), self.gone
            )
            if tasks:
                self.set_header("X-Megalens-Tasks", str(tasks))
            self.set_header("X-Megalens-Groups", str(groups))
            self.set_header("X-Megalens-Steps", str(steps))
            await self.stream(table)

        await self.with_source(run_id, None, answer)


def _where(engine: DaskEngine) -> dict[str, Any]:
    return {"address": engine.address, "workers": engine.workers}


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
