"""Child processes of the demo: started in sessions of their own, and ended by their id with a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

__all__ = ["Child", "DemoError", "catch_signals", "end_process", "until"]


class DemoError(RuntimeError):
    """One thing that the demo could not do, as one line for a person."""


class Child:
    """A process that is ended when the demo ends.

    A terminal's Ctrl-C does not reach it, because it has a session of its own: the demo decides in which order things end.

    Parameters
    ----------
    title : str
        What a message calls it.
    command : sequence of str
        Program and arguments.
    log : Path
        File that gets its stderr, and its stdout too unless ``show``.
    show : bool
        Whether its stdout goes to the terminal.
    env : mapping, optional
        Environment; this process's when absent.
    """

    def __init__(
        self,
        title: str,
        command: Sequence[str],
        log: Path,
        *,
        show: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.title = title
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=None if show else file,
                stderr=file,
                env=None if env is None else dict(env),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code, or None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise ``DemoError`` with the last line of the log when the process has ended."""
        code = self.exit_code
        if code is not None:
            raise DemoError(f"{self.title} ended by itself with exit code {code}: {self.last_line()}")

    def last_line(self) -> str:
        """Return the last line of the log, or where to look."""
        lines = [
            line.strip() for line in self._log.read_text("utf-8", "replace").splitlines() if line.strip()
        ]
        return lines[-1] if lines else f"nothing was written to {self._log.name}"

    def end(self, first: signal.Signals = signal.SIGTERM, seconds: float = 20.0) -> int:
        """Ask it to end, wait, and end what is left of its group by force. Safe twice. Returns the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(first)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._kill_group()
                self._process.wait(5)
        self._kill_group()
        return self._process.returncode

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def catch_signals() -> None:
    """Let SIGTERM and SIGINT raise ``KeyboardInterrupt``, so that what was started is ended either way.

    A shell that starts a job in the background has SIGINT ignored in it, and nbclient puts both back to their defaults: call this after it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # Once is enough: ending the children must not itself be interrupted half-way.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def end_process(pid: int, seconds: float = 10.0) -> None:
    """End a process that is not our child, such as the hub, which the training started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not _runs(pid):
                return
            time.sleep(0.05)


def until(
    ready: Callable[[], bool], seconds: float, failed: str, check: Callable[[], None] = lambda: None
) -> None:
    """Wait until ``ready()``. ``check`` may raise when waiting has become pointless.

    Raises
    ------
    DemoError
        With ``failed`` when the time is up.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        check()
        if time.monotonic() > deadline:
            raise DemoError(failed)
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:
        return not Path("/proc/self").exists()
    return state != "Z"
