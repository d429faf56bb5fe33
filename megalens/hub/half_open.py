"""Connections that have not shown the token yet."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

__all__ = ["HalfOpen"]


class HalfOpen:
    """Lets few connections be half open at once, and always the newest.

    Who is allowed in shows the token in the first packet. Where more than ``most`` are half open, the oldest is cut off, of the address that has
    the most of them: whoever opens thousands and says nothing pushes out his own, and not those who come to speak.

    Parameters
    ----------
    most : callable
        Returns how many may be half open now.
    cut_off : callable
        Told of each that is cut off.
    """

    def __init__(self, most: Callable[[], int], cut_off: Callable[[], None]) -> None:
        self._most = most
        self._cut_off = cut_off
        # By age. An aborted transport counts no more, although its socket is closed a little later.
        self._waiting: dict[Any, str] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, transport: Any) -> None:
        """Count in a connection that was just accepted."""
        address = transport.get_extra_info("peername")
        self._waiting[transport] = str(address[0]) if address else ""
        while len(self._waiting) > max(1, self._most()):
            [(crowd, _)] = Counter(self._waiting.values()).most_common(1)
            oldest = next(each for each, place in self._waiting.items() if place == crowd)
            self.end(oldest)
            oldest.abort()
            self._cut_off()

    def end(self, transport: Any) -> None:
        """Count out a connection that was let in or is gone. Safe twice."""
        with contextlib.suppress(KeyError):
            del self._waiting[transport]

    def close(self) -> None:
        """Cut off all of them."""
        for transport in list(self._waiting):
            self.end(transport)
            transport.abort()
