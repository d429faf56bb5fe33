"""Ending a process that the server started."""

from __future__ import annotations

import contextlib
import subprocess

__all__ = ["end_process"]


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
