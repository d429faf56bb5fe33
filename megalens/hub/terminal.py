"""Commands that stay in a terminal: one line of state that updates in place, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, TextIO

from ..protocol import shown_text


class StateLine:
    """A line at the bottom of a terminal, updated at most every ``seconds``. Quiet elsewhere."""

    def __init__(self, stream: TextIO, seconds: float = 0.2) -> None:
        self._stream = stream if stream.isatty() else None
        self._seconds = seconds
        self._last = float("-inf")

    def say(self, text: str) -> None:
        """Show ``text`` instead of the last one, unless that was only just now."""
        now = time.monotonic()
        if self._stream is None or now - self._last < self._seconds:
            return
        self._last = now
        width = shutil.get_terminal_size().columns - 1
        self._stream.write("\r\x1b[K" + shown_text(text)[:width].replace("\n", " "))
        self._stream.flush()

    def end(self) -> None:
        """Clear the line, so that what follows starts at its beginning."""
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def silence_websockets() -> None:
    """Leave out what the library logs of the faults of others, which are told otherwise."""
    logging.getLogger("websockets").addHandler(logging.NullHandler())
    logging.getLogger("websockets").propagate = False


async def run_shown(
    work: Awaitable[None], text: Callable[[], str], until: Callable[[], Awaitable[None]] | None = None
) -> bool:
    """Do as :func:`ask_to_stop` does, and show ``text()`` on standard error meanwhile."""
    showing = asyncio.create_task(_show(text))
    try:
        return await ask_to_stop(work, until)
    finally:
        showing.cancel()
        await asyncio.wait([showing])


async def _show(text: Callable[[], str]) -> None:
    line = StateLine(sys.stderr)
    try:
        while True:
            line.say(text())
            await asyncio.sleep(0.25)
    finally:
        line.end()


async def ask_to_stop(work: Awaitable[None], until: Callable[[], Awaitable[None]] | None = None) -> bool:
    """Await ``work``; SIGINT, SIGTERM or the end of ``until`` cancel it. Return whether they did."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, asked.set)
        except NotImplementedError:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(asked.set))
    waiters: list[asyncio.Future[Any]] = [asyncio.ensure_future(asked.wait())]
    if until is not None:
        waiters.append(asyncio.ensure_future(until()))
    try:
        await asyncio.wait([task, *waiters], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return False
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return True
    finally:
        for waiter in waiters:
            waiter.cancel()
