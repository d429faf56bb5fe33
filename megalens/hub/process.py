"""What a hub asks of the operating system: open files, memory that stays, whether a process runs."""

from __future__ import annotations

import contextlib
import ctypes
import os
from dataclasses import dataclass

__all__ = ["ConnectionLimits", "connection_limits", "keep_freed_memory", "process_runs"]

_OWN_FILES = 64
"""What a hub holds open besides connections: the recording, its port, libraries, and a reserve for files that
the recorder opens later.
"""
# More half open than the system hands over at once: whoever comes to speak has been read before others can
# push him out.
_MOST_HALF_OPEN = 256
_MOST_BACKLOG = 64

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_MIB = 1024 * 1024


def keep_freed_memory() -> None:
    """Let this process reuse the memory of one frame for the next, where its C library is glibc.

    By itself glibc gives large blocks back to the system as soon as they are free and fetches them anew: some
    hundred page faults for each frame of a few hundred kB, which cost more than all else that the hub does
    with it. Now blocks of up to 32 MiB stay in the heap, and up to 64 MiB of free memory at its end stay with
    the process.
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


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections there may be.

    Attributes
    ----------
    sessions : int
        That were let in.
    half_open : int
        That have not shown the token yet; counted separately, so that neither kind takes the other's.
    backlog : int
        That the system accepts before anybody looks at them.
    """

    sessions: int
    half_open: int
    backlog: int


def connection_limits() -> ConnectionLimits:
    """Raise the soft limit of open files, and return how many connections fit below it."""
    try:
        import resource
    except ImportError:
        # Windows has no such limit worth a word.
        return ConnectionLimits(2**31, _MOST_HALF_OPEN, _MOST_BACKLOG)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 2**31
    half_open = max(4, min(_MOST_HALF_OPEN, soft // 4))
    backlog = max(1, min(_MOST_BACKLOG, soft // 16))
    return ConnectionLimits(max(soft - _OWN_FILES - half_open - backlog, 1), half_open, backlog)


def process_runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
