"""Open sources of statistics: one for each run, shared by all requests, few at a time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ...runs.dask_engine import DaskEngine
from ...runs.moments import MomentSource, load_libraries
from ...runs.moments.source import MomentIndex
from ..errors import ServerError

_T = TypeVar("_T")
Opener = Callable[[str], MomentSource]

_LOOK_SECONDS = 0.15
_LOOK_SHARE = 4
_INTERRUPT_SECONDS = 0.1
_MOST_OPEN = 16
_IDLE_SECONDS = 300.0
_SWEEP_SECONDS = 30.0


class SharedMoments:
    """One run's source, its first reading under way or done.

    ``users`` and ``last_used`` are current requests, and the time of the last one; ``done`` and ``total`` are
    the progress of the first reading, in bytes. ``index`` is as of the last refresh, and empty before.
    ``version`` changes whenever there is more, and contains the number of names.
    """

    def __init__(self, run_id: str, opener: Opener, executor: ThreadPoolExecutor) -> None:
        self.run_id = run_id
        self.users = 0
        self.last_used = asyncio.get_running_loop().time()
        self.done, self.total = 0, 0
        self.index: MomentIndex = {"version": "", "stats": [], "names": [], "samples": False, "warnings": []}
        self.version = ""
        self._generation = secrets.token_hex(4)
        self._executor = executor
        self._cancelled = threading.Event()
        self._one = asyncio.Lock()
        self._source: MomentSource | None = None
        self._newer = asyncio.Event()
        self._watchers = 0
        self._watch: asyncio.Task[None] | None = None
        self._opening = asyncio.ensure_future(self._open(opener))

    @property
    def engine(self) -> DaskEngine | None:
        """What answers questions elsewhere, once the first reading is done."""
        return None if self._source is None else self._source.engine

    @property
    def tasks(self) -> tuple[int, int]:
        """How many tasks of how many the engine has done of the question that is being answered."""
        return (0, 0) if self._source is None else self._source.tasks

    @property
    def failed(self) -> bool:
        return self._opening.done() and (self._opening.cancelled() or self._opening.exception() is not None)

    async def opened(self, seconds: float, gone: asyncio.Event) -> bool:
        """Wait for the first reading and return whether it is done; raises its ``ClientError``."""
        await _first_of(seconds, gone, self._opening)
        if self._opening.done():
            self._opening.result()
        return self._opening.done()

    async def ask(self, question: Callable[[MomentSource], _T], gone: asyncio.Event | None = None) -> _T:
        """Run a question in a worker thread, one at a time."""
        # The source answers one at a time: waiting here takes no thread from others.
        async with self._one:
            if gone is not None and gone.is_set():
                raise ServerError(499, "cancelled", "The request was cancelled.")
            source = self._source
            if source is None:
                raise ServerError(409, "unreadable", "These statistics were closed meanwhile. Ask again.")
            loop = asyncio.get_running_loop()
            answer = loop.run_in_executor(self._executor, question, source)
            if gone is None:
                return await answer
            await _first_of(None, gone, answer)
            while not answer.done():
                # Between two statements there is nothing to interrupt.
                source.interrupt()
                await asyncio.wait({answer}, timeout=_INTERRUPT_SECONDS)
            return await answer

    def names_known(self, since: str | None) -> int:
        """Return how many names the client with the version ``since`` knows."""
        generation, _, rest = (since or "").partition(".")
        count = rest.partition(".")[0]
        known = generation == self._generation and count.isascii() and count.isdecimal() and len(count) < 12
        return int(count) if known else 0

    async def refresh(self) -> None:
        if await self.ask(lambda source: source.refresh()):
            self._take(await self.ask(lambda source: source.index()))

    async def newer(self, since: str, seconds: float, gone: asyncio.Event) -> bool:
        """Wait until there is more than ``since``, and return whether there is."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        self._watchers += 1
        if self._watch is None or self._watch.done():
            self._watch = asyncio.ensure_future(self._look())
        try:
            while self.version == since and not gone.is_set() and loop.time() < end:
                newer = asyncio.ensure_future(self._newer.wait())
                await _first_of(end - loop.time(), gone, newer, self._watch)
                newer.cancel()
                if self._watch.done():
                    self._watch.result()
            return self.version != since
        finally:
            self._watchers -= 1

    async def close(self) -> None:
        """Cancel what is under way and close the source. Safe twice."""
        self._cancelled.set()
        if self._watch is not None:
            self._watch.cancel()
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await self._opening
        source, self._source = self._source, None
        if source is not None:
            closed = asyncio.get_running_loop().run_in_executor(None, source.close)
            while not closed.done():
                source.interrupt()
                await asyncio.wait({closed}, timeout=_INTERRUPT_SECONDS)

    async def _open(self, opener: Opener) -> None:
        def read() -> tuple[MomentSource, MomentIndex]:
            source = opener(self.run_id)
            try:
                source.refresh(self._progressed)
                return source, source.index()
            except BaseException:
                source.close()
                raise

        loop = asyncio.get_running_loop()
        self._source, index = await loop.run_in_executor(self._executor, read)
        self._take(index)

    def _progressed(self, done: int, total: int, _what: str = "") -> None:
        self.done, self.total = int(done), int(total)
        if self._cancelled.is_set():
            raise ServerError(499, "cancelled", "The reading was cancelled.")

    def _take(self, index: MomentIndex) -> None:
        self.index = index
        self.version = f"{self._generation}.{len(index['names'])}.{index['version']}"
        self._newer.set()
        self._newer = asyncio.Event()

    async def _look(self) -> None:
        """Refresh while somebody waits: often, but never most of the time."""
        loop = asyncio.get_running_loop()
        while self._watchers:
            started = loop.time()
            await self.refresh()
            took = loop.time() - started
            await asyncio.sleep(max(_LOOK_SECONDS, _LOOK_SHARE * took))


class MomentPool:
    """The open sources. One that nobody asks is closed after ``idle_seconds``."""

    def __init__(self, opener: Opener, idle_seconds: float = _IDLE_SECONDS) -> None:
        self._opener = opener
        self._idle_seconds = idle_seconds
        self._executor = ThreadPoolExecutor(4, "megalens-moments")
        self._shared: dict[str, SharedMoments] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._warm = False

    @contextlib.asynccontextmanager
    async def share(self, run_id: str) -> AsyncIterator[SharedMoments]:
        """Return a run's shared source, opened if needed; raises ``ServerError`` 503 for too many."""
        shared = self._shared.get(run_id)
        if shared is None or shared.failed:
            self._evict()
            shared = self._shared[run_id] = SharedMoments(run_id, self._opener, self._executor)
            if self._sweeper is None or self._sweeper.done():
                self._sweeper = asyncio.ensure_future(self._sweep())
        shared.users += 1
        try:
            yield shared
        finally:
            shared.users -= 1
            shared.last_used = asyncio.get_running_loop().time()
            if shared.failed and self._shared.get(run_id) is shared:
                # The next request retries.
                del self._shared[run_id]

    def __len__(self) -> int:
        return len(self._shared)

    def tasks(self, run_id: str) -> tuple[int, int]:
        """Return :attr:`SharedMoments.tasks` of a run; nothing of one that nobody asked."""
        shared = self._shared.get(run_id)
        return (0, 0) if shared is None else shared.tasks

    def warm_up(self) -> None:
        """Prepare for the first question, in a worker thread. Later calls do nothing."""
        if not self._warm:
            self._warm = True
            self._executor.submit(load_libraries)

    async def close(self) -> None:
        """Close every source and end the worker threads. Safe twice."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for run_id in list(self._shared):
            self._drop(run_id)
        if self._closing:
            await asyncio.wait(self._closing)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _evict(self) -> None:
        if len(self._shared) < _MOST_OPEN:
            return
        unused = [shared for shared in self._shared.values() if not shared.users]
        if not unused:
            raise ServerError(
                503,
                "busy",
                f"The statistics of {_MOST_OPEN} runs are being read already. Close the views of one of "
                "them and try again.",
            )
        self._drop(min(unused, key=lambda shared: shared.last_used).run_id)

    def _drop(self, run_id: str) -> None:
        closing = asyncio.ensure_future(self._shared.pop(run_id).close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _sweep(self) -> None:
        while self._shared:
            await asyncio.sleep(min(_SWEEP_SECONDS, self._idle_seconds))
            now = asyncio.get_running_loop().time()
            for run_id, shared in list(self._shared.items()):
                if not shared.users and now - shared.last_used >= self._idle_seconds:
                    self._drop(run_id)


async def _first_of(seconds: float | None, gone: asyncio.Event, *futures: asyncio.Future[Any]) -> None:
    """Wait for the first of some futures, for a disconnect or the timeout; the futures continue."""
    leaving = asyncio.ensure_future(gone.wait())
    try:
        limit = None if seconds is None else max(0.0, seconds)
        await asyncio.wait({*futures, leaving}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
