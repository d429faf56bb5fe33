"""The list of runs, what a person writes about one, and opening what is not in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from ..protocol import CoursesRequest, StatisticsRequest, check_request
from ..runs.storage import is_address
from .base_handler import MegalensHandler
from .errors import ServerError, require
from .forward import ForwardHandler
from .reader.process import Reader


class RunsHandler(MegalensHandler):
    """``megalens/api/runs``."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(await self.in_thread(self.registry.listing))
        if self.registry.records():
            # Who sees the list may choose that run next.
            reader: Reader = self.settings["megalens_reader"]
            reader.warm_up()


class SummariesHandler(MegalensHandler):
    """``megalens/api/summaries``."""

    @authenticated
    @authorized
    async def get(self) -> None:
        """Answer the further columns of the table of runs."""
        reader: Reader = self.settings["megalens_reader"]
        self.answer(await reader.ask("/summaries", {"runs": await self.in_thread(self.registry.places)}))


class CoursesHandler(MegalensHandler):
    """``megalens/api/courses``."""

    @authenticated
    @authorized
    async def post(self) -> None:
        """Answer one scalar of many recorded runs."""
        request = check_request(CoursesRequest, self.json_body())
        places = await self.in_thread(self.registry.places)
        wanted = request.get("runs", list(places))
        reader: Reader = self.settings["megalens_reader"]
        known = {run_id: places[run_id] for run_id in wanted if run_id in places}
        asked = {**request, "places": known, "home": str(self.registry.root)}
        self.answer(await reader.ask("/courses", asked))


class RunHandler(ForwardHandler):
    """``megalens/api/runs/{id}``."""

    @authenticated
    @authorized
    async def get(self, run_id: str, rest: str = "") -> None:
        """Answer a recorded run's description, or the entry of a live run or one without a recording."""
        known = await self.in_thread(self._known, run_id)
        if known is None:
            await self.forward(run_id, "")
        else:
            self.answer(known)

    @authenticated
    @authorized
    async def patch(self, run_id: str) -> None:
        body = self.json_body()
        unknown = set(body) - {"name", "notes", "tags"}
        require(
            body and not unknown,
            "The body must be {name, notes, tags}, at least one of them and nothing else.",
            min(unknown, default="name")[:100],
        )
        self.answer(await self.in_thread(self.registry.describe, run_id, body))

    @authenticated
    @authorized
    async def delete(self, run_id: str) -> None:
        self.answer({"gone": await self.in_thread(self.registry.delete, run_id)})

    def _known(self, run_id: str) -> dict[str, Any] | None:
        """Return the answer about a run without files of ours; None where its recording must be read."""
        entry = self.registry.entry(run_id)
        if entry["state"] == "live":
            return entry
        statistics = self.registry.statistics.get(run_id)
        if statistics is not None:
            status = statistics.status(entry["step"] or 0)
            hello = statistics.hello(entry["name"])
            return {"hello": hello, "status": status, "truncated": [], "kind": "statistics"}
        if run_id not in self.registry.places():
            # It was live a moment ago and has no folder that could be read (yet).
            return {**entry, "state": "gone"}
        return None


class StatisticsHandler(MegalensHandler):
    """``megalens/api/statistics``."""

    @authenticated
    @authorized
    async def post(self) -> None:
        """Open a run on other storage, files of other tools, or a tree of raw-moment files, and answer the
        entries of its runs.
        """
        path = check_request(StatisticsRequest, self.json_body())["path"].strip()
        reader: Reader = self.settings["megalens_reader"]
        registry = self.registry
        if is_address(path):
            self._check_kind(path)
            found = await reader.ask("/mirror", {"address": path})
        else:
            target, _ = await self.in_thread(registry.statistics.resolve, path)
            found = await reader.ask("/foreign", {"path": str(target), "within": str(registry.root)})
        if found["folder"] is not None:
            entry = await self.in_thread(registry.add_converted, Path(found["folder"]))
            self.answer({"runs": [entry], "warnings": []})
            return
        runs, warnings = await self.in_thread(registry.open_statistics, path)
        self.answer({"runs": runs, "warnings": warnings})

    def _check_kind(self, address: str) -> None:
        kind, kinds = address.partition("://")[0], self.settings["megalens_storage"]
        if kind not in kinds:
            raise ServerError(
                403,
                "forbidden",
                f"This server opens runs from {', '.join(sorted(kinds)) or 'no other storage'}, not from "
                f"{kind}://. Its administrator sets that with MegalensExtension.storage.",
                "path",
            )
