"""Processes that the server starts and ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

__all__ = ["end_process", "start_process"]


def start_process(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process that writes lines, and ends when its standard input is closed, so also when this server ends in any way.

    Raises
    ------
    OSError, ValueError
        When it cannot be started.
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
    """Ask a process to end, kill it when it has not after ``seconds``, and close what was written to it by."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
