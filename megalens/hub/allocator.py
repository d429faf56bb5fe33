"""How the hub's process keeps its memory."""

from __future__ import annotations

import contextlib
import ctypes

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_MIB = 1024 * 1024


def keep_freed_memory() -> None:
    """Let this process use the memory of one frame for the next, where its C library is glibc; elsewhere do nothing.

    By itself glibc gives large blocks back to the system as soon as they are free and fetches them anew: some hundred page faults for each frame of
    a few hundred kB, which cost more than all else that the hub does with it. Now blocks of up to 32 MiB stay in the heap, and up to 64 MiB of free
    memory at its end stay with the process.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        # 32 MiB is the most that glibc takes for blocks that it does not map one by one.
        for parameter, value in (
            (_MMAP_THRESHOLD, 32 * _MIB),
            (_TRIM_THRESHOLD, 64 * _MIB),
            (_TOP_PAD, 4 * _MIB),
        ):
            mallopt(parameter, value)
