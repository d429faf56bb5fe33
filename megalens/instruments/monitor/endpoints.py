"""How many alarms other settings of the rules would have given in a recorded run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ...protocol import AlarmCountRequest, check_request, check_settings_size
from ...runs import open_run
from ...server.errors import ServerError
from ...server.reader.read_handler import ReadHandler
from .recorded import count_alarms
from .rules import RULES
from .settings import installed_rules

_MOST_SECONDS = 30.0


class AlarmCountsHandler(ReadHandler):
    """``runs/{id}/alarms/count``."""

    async def post(self, run_id: str) -> None:
        """Judge the recorded steps by the settings of the body, for a bounded time."""
        settings = check_request(AlarmCountRequest, self.json_body())["settings"]
        check_settings_size({"monitor": settings})
        self.answer(await self.alone(self._count, run_id, settings))

    def _count(self, run_id: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        self._check()
        path = self.runs.statistics_path(run_id)
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
