"""The common base of the endpoints that the Jupyter server itself answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from jupyter_server.base.handlers import APIHandler

from .json_requests import JsonRequests
from .registry import RunRegistry

_T = TypeVar("_T")


class MegalensHandler(JsonRequests, APIHandler):
    """Base of the REST endpoints. Refuses without login as every Jupyter endpoint does."""

    auth_resource = "megalens"

    @property
    def registry(self) -> RunRegistry:
        registry: RunRegistry = self.settings["megalens_registry"]
        return registry

    async def in_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run file work in a worker thread."""
        executor: Executor = self.settings["megalens_executor"]
        return await asyncio.get_running_loop().run_in_executor(executor, work, *arguments)
