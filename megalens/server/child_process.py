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
_MOST_LINE = 500
_END_SECONDS = 10


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


class ChildRun:
    """A process that makes a run: it prints ``run ID``, and lines of which the last says why it ended.

    ``known`` is set once the id of its ``run`` is there, or never will be. Raises as :func:`start_process`.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.process = start_process(command)
        self.run: str | None = None
        self.known = threading.Event()
        self._lines: deque[str] = deque(maxlen=20)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def last_words(self, code: int) -> str:
        """Return the last line of one that ended."""
        # It may still be in the pipe.
        self._reader.join(2)
        line = self._lines[-1] if self._lines else f"it ended with exit code {code} and wrote nothing"
        return line.replace(str(Path.home()), "~")

    def end(self) -> None:
        """End it, and wait for that."""
        end_process(self.process, _END_SECONDS)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                match = _RUN.fullmatch(line.strip())
                if match and self.run is None:
                    self.run = match[1]
                    self.known.set()
                elif line.strip():
                    self._lines.append(line.strip()[:_MOST_LINE])
        self.known.set()
