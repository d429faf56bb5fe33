"""Processes that the server starts and ends."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

_RUN = re.compile(r"run ([A-Za-z0-9][A-Za-z0-9._-]{0,99})")
_MOST_LINE, _MOST_LINES = 500, 20


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


class RunProcess:
    """A process that makes a run, and says its id in a line: ``run ID``. Raises as :func:`start_process`.

    ``run`` is that id; ``named`` is set once it came, or the process ended.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.process = start_process(command)
        self.run: str | None = None
        self.named = threading.Event()
        self.lines: deque[str] = deque(maxlen=_MOST_LINES)
        """What it wrote beside that, the last lines of it."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def last_line(self, code: int) -> str:
        """Return what a process that ended with that exit code said last, without this user's home."""
        # It may still be in the pipe.
        self._reader.join(2)
        line = self.lines[-1] if self.lines else f"it ended with exit code {code} and wrote nothing"
        return line.replace(str(Path.home()), "~")

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                match = _RUN.fullmatch(line.strip())
                if match and self.run is None:
                    self.run = match[1]
                    self.named.set()
                elif line.strip():
                    self.lines.append(line.strip()[:_MOST_LINE])
        self.named.set()
