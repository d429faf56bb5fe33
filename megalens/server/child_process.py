"""Processes that the server starts and ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence


def start_process(command: Sequence[str], stderr: int | None = subprocess.STDOUT) -> subprocess.Popen[str]:
    """Start a process that writes lines, and ends with its standard input, so also with this server.

    Raises ``OSError`` or ``ValueError`` when it cannot be started.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
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
