"""Whether another process is there."""

from __future__ import annotations

import os

__all__ = ["process_runs"]


def process_runs(pid: int) -> bool:
    """Return whether a process with this number runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
