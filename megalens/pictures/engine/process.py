"""One child process of the engine, as its host sees it."""

from __future__ import annotations

import importlib.util
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...protocol import MegalensError
from .child import FrameError, pack_frame, read_frame

BUNDLE = Path(__file__).with_name("bundle") / "engine.js"
_MOST_MEMORY = 1 << 30
_MOST_DATA = 3 << 30
_MOST_ERRORS = 4000
_MOST_WAITING = 10_000
_END_SECONDS = 2.0

Frame = tuple[dict[str, Any], bytes]


class EngineError(MegalensError, RuntimeError):
    """A job of the engine did not finish. The next one runs in a fresh engine.

    Parameters
    ----------
    message : str
        One or two sentences for a person.
    code : str
        Stable machine-readable reason: ``missing`` (this installation lacks the engine or its bundle),
        ``ended`` (its process was ended), ``memory``, ``timeout``, ``too-large`` (a message
        between the two), ``stuck`` (the job waits for something that cannot come), or ``failed`` (the job's
        own error).
    field : str, optional
        What of the job's arguments is at fault.
    """

    def __init__(self, message: str, *, code: str = "failed", field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field


class EngineProcess:
    """A child with V8 in it, for one thread at a time.

    Three threads of its own move bytes, so that neither side waits for the other's pipe. Bounds are in bytes:
    of V8's heap, and of all data where the platform has such a bound. Raises ``EngineError`` (``missing``)
    without a bundle or process.
    """

    def __init__(
        self, bundle: Path = BUNDLE, most_memory: int = _MOST_MEMORY, most_data: int = _MOST_DATA
    ) -> None:
        if not bundle.is_file():
            raise EngineError(
                "This installation lacks the engine's script. Reinstall megalens; in a checkout run: npm "
                "run build:bundles",
                code="missing",
            )
        if sys.platform == "emscripten" or importlib.util.find_spec("py_mini_racer") is None:
            raise EngineError(
                "Pictures and reports need the engine, mini-racer, which is not here. Views in a page are "
                "drawn without it. Elsewhere than in a browser's Python: pip install mini-racer.",
                code="missing",
            )
        child = str(Path(__file__).with_name("child.py"))
        try:
            self._process = subprocess.Popen(
                [sys.executable, child, str(bundle), str(most_memory), str(most_data)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Not for an interrupt of the notebook's cell: the host ends it when its job is cancelled.
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(
                f"The engine's process could not be started: {error.strerror}.", code="missing"
            ) from error
        self._errors = b""
        self._started = False
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._inbox: queue.SimpleQueue[Frame | EngineError] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, name="megalens-engine", daemon=True)
        self._complaints = threading.Thread(target=self._hear, name="megalens-engine", daemon=True)
        self._listener.start()
        self._complaints.start()
        threading.Thread(target=self._write, name="megalens-engine", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: dict[str, Any], body: bytes | memoryview = b"") -> None:
        """Queue a message without waiting; raises ``EngineError`` (``too-large``)."""
        try:
            self._outbox.put(pack_frame(message, body))
        except FrameError as error:
            raise EngineError(f"{error} Choose fewer layers or steps.", code="too-large") from error

    def receive(self, seconds: float) -> Frame | None:
        """Wait for the next message; None on timeout.

        Raises ``EngineError`` ``ended``, ``memory``, ``missing`` or ``too-large``: the process is gone.
        """
        try:
            frame = self._inbox.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if isinstance(frame, EngineError):
            raise frame
        if frame[0].get("type") == "broken":
            raise _broken(str(frame[0].get("code")), str(frame[0].get("message")))
        return frame

    def end(self) -> None:
        """End the process, by force if needed. Safe twice."""
        self._outbox.put(None)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the process now. Safe twice."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._outbox.put(None)

    def forget(self) -> None:
        """Drop it in a fork of its host's process: the pipes stay open there, and must not here."""
        self._process.returncode = 0
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    # Closing the file object would wait for a lock of a thread that this process does not
                    # have.
                    os.close(pipe.fileno())

    def _listen(self) -> None:
        assert self._process.stdout is not None
        problem: EngineError | None = None
        try:
            while (frame := read_frame(self._process.stdout)) is not None:
                self._started = True
                self._inbox.put(frame)
                if self._inbox.qsize() > _MOST_WAITING:
                    raise FrameError("The engine sends more than is taken.")
        except FrameError as error:
            problem = EngineError(f"{error} Choose fewer layers or steps.", code="too-large")
        except (OSError, ValueError):
            pass
        if problem is not None:
            self._process.kill()
        self._complaints.join(_END_SECONDS)
        self._inbox.put(problem or self._gone())

    def _hear(self) -> None:
        assert self._process.stderr is not None
        with suppress(OSError, ValueError):
            while piece := os.read(self._process.stderr.fileno(), 65536):
                # The reason of V8's abort precedes a long list of addresses.
                self._errors = (self._errors + piece)[:_MOST_ERRORS]

    def _write(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            while (frame := self._outbox.get()) is not None:
                self._process.stdin.write(frame)
                self._process.stdin.flush()
        with suppress(OSError, ValueError):
            self._process.stdin.close()

    def _gone(self) -> EngineError:
        if not self._started and (most := _most_addresses()) is not None:
            return EngineError(
                f"The engine could not be started: a process may reserve {most / 2**30:,.0f} GiB of address "
                "space here (ulimit -v), and V8 reserves 1,400 GiB, of which it uses little. Draw this where "
                "there is no such limit: ulimit -v unlimited, a compute node, or a notebook's own page.",
                code="missing",
            )
        text = self._errors.decode("utf-8", "replace")
        if "out of memory" in text.lower() or "MemoryError" in text:
            return _broken("memory", "")
        return EngineError(
            "The engine's process was ended while it worked. Ask again: it is started anew. If it happens "
            "again, there may be too little memory.",
            code="ended",
        )


def _most_addresses() -> int | None:
    """Return how many bytes of address space a process of ours may reserve at most, None where any number."""
    with suppress(ImportError, OSError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        return None if most == resource.RLIM_INFINITY else most
    return None


def _broken(code: str, message: str) -> EngineError:
    if code == "memory":
        return EngineError(
            "The engine ran out of memory for this picture. Choose fewer layers, fewer steps or a stronger "
            "reduction.",
            code="memory",
        )
    if code == "missing":
        return EngineError(
            f"The engine could not be started: {message}. Reinstall megalens and mini-racer.", code="missing"
        )
    return EngineError(message, code=code)
