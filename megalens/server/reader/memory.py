"""What the reading process takes of memory, and gives back."""

from __future__ import annotations

import asyncio
import ctypes
import os
from contextlib import suppress
from typing import Any

import pyarrow as pa

_GRACE_SECONDS = 5.0
_SENT_SECONDS = 0.1


def limit_memory(most: int) -> None:
    """Bound this process's data to ``most`` bytes, where the system can: what needs more fails alone."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def take_small_pages() -> None:
    """Have Arrow use jemalloc if possible, unless ``ARROW_DEFAULT_MEMORY_POOL`` selects another allocator.

    mimalloc, its default, takes huge pages, which the system clears completely: in a server's first answer
    from ten million rows a quarter of the time.
    """
    if not os.environ.get("ARROW_DEFAULT_MEMORY_POOL"):
        with suppress(NotImplementedError):
            pa.set_memory_pool(pa.jemalloc_memory_pool())


def give_back_memory() -> None:
    """Return unused memory of Arrow and the C library to the system: they retain what large answers took."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


class Wear:
    """Ends this process once a question found too little memory, when nobody waits for it, or after seconds.

    An allocator gives none of its addresses back to the others, so that even small questions would fail from
    then on. The server starts the next process.
    """

    def __init__(self) -> None:
        self._active = 0
        self._worn = False

    def began(self) -> None:
        self._active += 1

    def finished(self, without_memory: bool) -> None:
        self._active -= 1
        if without_memory and not self._worn:
            self._worn = True
            asyncio.get_running_loop().call_later(_GRACE_SECONDS, os._exit, 0)
        if self._worn and not self._active:
            # What was answered last is still under way.
            asyncio.get_running_loop().call_later(_SENT_SECONDS, self._end)

    def _end(self) -> None:
        if not self._active:
            os._exit(0)


def _trim() -> Any:
    with suppress(OSError, AttributeError):
        return ctypes.CDLL(None).malloc_trim
    return None


_TRIM = _trim()
