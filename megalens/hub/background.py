"""A coroutine in a thread of its own, for callers that have no event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

_Said = TypeVar("_Said")


class BackgroundTask(Generic[_Said]):
    """Runs ``work`` in a thread until it ends or :meth:`close` cancels it.

    ``work`` takes a function by which it says, once, that it is ready. What it raises later is reported as
    any thread's is.
    """

    def __init__(
        self, work: Callable[[Callable[[_Said], None]], Coroutine[Any, Any, None]], name: str
    ) -> None:
        self._said: Future[_Said] = Future()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(work(self._said.set_result))
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """What it raised before it was ready."""
        return self._said.exception() if self._said.done() else None

    def ready(self) -> _Said:
        """Wait until it is ready, and return what it said then; raises what it raised before."""
        return self._said.result()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for its end, for as long at most."""
        self._thread.join(seconds)

    def close(self, seconds: float | None = None) -> None:
        """Cancel it and wait for its end. Safe twice."""
        # Its loop may end by itself at this moment.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(seconds)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._end())

    async def _end(self) -> None:
        try:
            await self._task
        except asyncio.CancelledError:
            pass
        except Exception as error:
            if self._said.done():
                raise
            self._said.set_exception(error)
