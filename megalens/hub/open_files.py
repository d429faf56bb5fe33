"""How many connections the system lets a hub have."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

__all__ = ["Places", "count_places"]

_OWN_FILES = 64
"""What a hub holds open besides: the recording, its port, libraries, and a reserve for files that the recorder opens later."""
# More half open than the system hands over at once: whoever comes to speak has been read before others can push him out.
_MOST_HALF_OPEN = 256
_MOST_BACKLOG = 64


@dataclass(frozen=True)
class Places:
    """How many connections there may be.

    Attributes
    ----------
    sessions : int
        That were let in.
    half_open : int
        That have not shown the token yet. These have places of their own, so that neither kind takes the other's.
    backlog : int
        That the system accepts before anybody looks at them.
    """

    sessions: int
    half_open: int
    backlog: int


def count_places() -> Places:
    """Raise the soft limit of open files as far as the system allows, and return how many connections fit below it."""
    try:
        import resource
    except ImportError:
        # Windows has no such limit worth a word.
        return Places(2**31, _MOST_HALF_OPEN, _MOST_BACKLOG)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 2**31
    half_open = max(4, min(_MOST_HALF_OPEN, soft // 4))
    backlog = max(1, min(_MOST_BACKLOG, soft // 16))
    return Places(max(soft - _OWN_FILES - half_open - backlog, 1), half_open, backlog)
