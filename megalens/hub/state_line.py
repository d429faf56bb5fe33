"""One line of state that updates in place."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from ..protocol import shown_text

__all__ = ["StateLine", "show_line"]


class StateLine:
    """A line at the bottom of a terminal. Quiet when the stream is not one.

    Parameters
    ----------
    stream : TextIO
        Where to write.
    seconds : float
        Least time between two updates.
    """

    def __init__(self, stream: TextIO, seconds: float = 0.2) -> None:
        self._stream = stream if stream.isatty() else None
        self._seconds = seconds
        self._last = float("-inf")

    def say(self, text: str) -> None:
        """Show ``text`` in place of what was there, unless the last update was only just now."""
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


async def show_line(text: Callable[[], str]) -> None:
    """Show ``text()`` on standard error until this is cancelled."""
    line = StateLine(sys.stderr)
    try:
        while True:
            line.say(text())
            await asyncio.sleep(0.25)
    finally:
        line.end()
