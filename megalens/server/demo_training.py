"""The demo training that a person starts from an empty panel: one child process of the Jupyter server."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from ..hub.discovery import live_hubs
from .base_handler import MegalensHandler
from .child_process import RunProcess, end_process
from .errors import ServerError, require

_END_SECONDS = 10


class DemoHandler(MegalensHandler):
    """``megalens/api/demo``. A request cannot choose what is started."""

    @property
    def demo(self) -> DemoTraining:
        demo: DemoTraining = self.settings["megalens_demo"]
        return demo

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(await self.in_thread(self.demo.state))

    @authenticated
    @authorized
    async def post(self) -> None:
        require(not self.json_body(), "The body must be {}: the demo takes no settings.")
        self.answer(await self.in_thread(self.demo.start))

    @authenticated
    @authorized
    async def delete(self) -> None:
        self.answer(await self.in_thread(self.demo.stop))


class DemoTraining:
    """At most one demo training. Its methods start and await a process: call them in a worker thread.

    ``command`` replaces the training in tests.
    """

    def __init__(self, folder: Path, allowed: bool, command: list[str] | None = None) -> None:
        # No part of a request gets into this list. It ends with its standard input, so also with this server.
        self._command = command or [
            *(sys.executable, "-m", "megalens.demo", "--record", str(folder)),
            *("--linger", "2", "--until-stdin-closes"),
        ]
        self._allowed = allowed
        self._lock = threading.Lock()
        self._training: RunProcess | None = None
        self._live = False
        self._stopped = False
        self._closed = False

    def state(self) -> dict[str, Any]:
        """Return ``{state, run, message}``.

        ``state`` is ``off`` (not allowed), ``idle`` (never started, stopped, or finished), ``starting``,
        ``running`` or ``failed``; ``run`` the id of its run once that is live; ``message`` the last line of a
        failed one.
        """
        with self._lock:
            return self._state()

    def start(self) -> dict[str, Any]:
        """Start the training unless it runs, and return the state.

        Raises ``ServerError``: 403 when the administrator does not allow it, 409 while the server ends.
        """
        if not self._allowed:
            raise ServerError(
                403,
                "forbidden",
                "This server may not start the demo. Its administrator can allow it in "
                "c.MegalensExtension.allow_demo.",
            )
        with self._lock:
            if self._closed:
                raise ServerError(409, "refused", "The Jupyter server is ending. Start it again first.")
            if self._training is None or self._training.process.poll() is not None:
                self._live = self._stopped = False
                try:
                    self._training = RunProcess(self._command)
                except OSError as error:
                    raise ServerError(
                        500, "internal", f"The demo could not be started: {error.strerror}."
                    ) from error
            return self._state()

    def stop(self) -> dict[str, Any]:
        """End the training, wait for it, and return the state. Does nothing when none runs."""
        with self._lock:
            self._end()
            return self._state()

    def close(self) -> None:
        """End the training for good. Safe twice."""
        with self._lock:
            self._closed = True
            self._end()

    def _state(self) -> dict[str, Any]:
        training = self._training
        if not self._allowed:
            return _answer("off")
        if training is None or self._stopped:
            return _answer("idle")
        code = training.process.poll()
        if code is None:
            self._live = self._live or any(hub.id == training.run for hub in live_hubs())
            return _answer("running", training.run) if self._live else _answer("starting")
        return _answer("idle") if code == 0 else _answer("failed", None, training.last_line(code))

    def _end(self) -> None:
        if self._training is not None and self._training.process.poll() is None:
            self._stopped = True
            end_process(self._training.process, _END_SECONDS)


def _answer(state: str, run: str | None = None, message: str | None = None) -> dict[str, Any]:
    return {"state": state, "run": run, "message": message}
