"""How many alarms other settings of the rules would have given in a recorded run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from ...protocol import AlarmCountRequest, check_request, check_settings_size
from ...runs import open_run
from ...server.base_handler import MegalensHandler
from ...server.errors import ServerError
from .recorded import count_alarms
from .rules import RULES
from .settings import installed_rules

_MOST_SECONDS = 30.0


class AlarmCountsHandler(MegalensHandler):
    """``megalens/api/runs/{id}/alarms/count``."""

    @authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        """Judge the recorded steps by the settings of the body, for a bounded time."""
        settings = check_request(AlarmCountRequest, self.json_body())["settings"]
        check_settings_size({"monitor": settings})
        executor: Executor = self.settings["megalens_counting"]
        self.answer(await asyncio.get_running_loop().run_in_executor(executor, self._count, run_id, settings))

    def _count(self, run_id: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        self._check()
        path = self.registry.statistics_path(run_id)
        rules = settings.get("rules")
        if isinstance(rules, Mapping):
            # Rules of a training's own script are not here.
            known = {*RULES, *installed_rules()}
            settings = {**settings, "rules": {name: each for name, each in rules.items() if name in known}}
        began = time.monotonic()

        def enough() -> bool:
            self._check()
            return time.monotonic() - began > _MOST_SECONDS

        with open_run(path) as run:
            found = count_alarms(run, settings, lambda *_: self._check(), enough=enough)
        return {name: found[name] for name in ("steps", "alarms", "rules", "whole")}

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise ServerError(499, "cancelled", "The request was cancelled.")


ENDPOINTS = (("alarms/count", AlarmCountsHandler),)
