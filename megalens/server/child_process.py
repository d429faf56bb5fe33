"""Processes that the server starts and ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa


# Where Arrow takes the memory of what this server reads.
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


def _trim() -> Any:
    with suppress(OSError, AttributeError):
        return ctypes.CDLL(None).malloc_trim
    return None


_TRIM = _trim()


def start_process(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process that writes lines, and ends with its standard input, so also with this server.

    Raises ``OSError`` or ``ValueError`` when it cannot be started.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"},
        # Ctrl-C in the server's terminal asks the server first, which then ends its child.
        start_new_session=True,
    )


def end_process(process: subprocess.Popen[str], seconds: float) -> None:
    """Ask a process to end, kill it after ``seconds``, and close its standard input."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
