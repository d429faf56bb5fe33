"""How many connections the system lets a hub have."""

from __future__ import annotations

import contextlib

__all__ = ["most_connections"]

_OWN_FILES = 64
"""What a hub holds open besides: the recording, its port, libraries, and a reserve."""


def most_connections() -> int:
    """Raise the soft limit of open files as far as the system allows, and return how many connections fit below it."""
    try:
        import resource
    except ImportError:
        # Windows has no such limit worth a word.
        return 2**31
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else max(soft - _OWN_FILES, 1)
