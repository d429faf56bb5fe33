"""Writing the run to disk from a thread of its own: lossless, or it says exactly what is missing."""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ..protocol import CheckedBody
from ..protocol.messages_generated import Recording
from .errors import HubError
from .recording_folder import RecordingFolder
from .step_ranges import StepRanges

__all__ = ["Recorder"]

_DESCRIBE_SECONDS = 5.0
_REDESCRIBE_SECONDS = 0.5


class Recorder:
    """Records every frame that the hub passes on.

    The event loop only ever appends to a bounded queue here. Whatever does not fit, or comes once the disk failed, is counted with its steps.

    Parameters
    ----------
    path : Path
        The run folder to make.
    description : dict
        First content of ``run.json``.
    queue_bytes : int
        Bound of what may wait for the disk.

    Raises
    ------
    HubError
        When the folder cannot be made or written.
    """

    def __init__(self, path: Path, description: dict[str, Any], queue_bytes: int) -> None:
        self.state: Literal["on", "failed", "closed"] = "on"
        self.message: str | None = None
        self.dropped_rows = 0
        self._queue_bytes = queue_bytes
        self._description = description
        self._missing = StepRanges()
        self._lock = threading.Condition()
        self._queue: deque[tuple[CheckedBody, int, int]] = deque()
        self._waiting_bytes = 0
        self._redescribe = False
        self._closing = False
        try:
            self._folder = RecordingFolder(path)
            self._folder.write_description(self._full_description())
        except OSError as error:
            raise HubError(
                f"Could not write the run folder in {path.parent}: {error.strerror or error}. "
                "Choose another folder for --record."
            ) from error
        self._thread = threading.Thread(target=self._run, name="megalens-recorder", daemon=True)
        self._thread.start()

    def put(self, body: CheckedBody, step: int, size: int) -> None:
        """Hand over the rows of one frame. Never waits.

        Parameters
        ----------
        body : CheckedBody
            The rows.
        step : int
            Newest step in it.
        size : int
            Bytes of the frame.
        """
        with self._lock:
            if self.state != "on" or self._closing or self._waiting_bytes + size > self._queue_bytes:
                self._miss(body, step)
                return
            self._queue.append((body, step, size))
            self._waiting_bytes += size
            self._lock.notify()

    def describe(self, description: dict[str, Any]) -> None:
        """Give ``run.json`` new content, written soon."""
        with self._lock:
            self._description = description
            self._redescribe = True
            self._lock.notify()

    def status(self) -> Recording:
        """Return the ``recording`` member of ``status``."""
        with self._lock:
            result: Recording = {"state": self.state, "bytes": self._folder.bytes}
            if self.message:
                result["message"] = self.message[:500]
            if self._missing:
                result["missing_steps"] = self._missing.to_list()
            return result

    def close(self, description: dict[str, Any]) -> None:
        """Write what waits, pack the streams to Parquet and end the thread. Blocks; called again it brings ``run.json`` up to date."""
        with self._lock:
            again = self._closing
            self._description = description
            self._closing = True
            self._lock.notify()
        self._thread.join()
        if again and self.behind:
            self._describe_now()

    @property
    def behind(self) -> bool:
        """Whether rows came after the end that ``run.json`` does not yet say are missing."""
        return self._redescribe and not self._thread.is_alive()

    def _miss(self, body: CheckedBody, step: int) -> None:
        self.dropped_rows += body.rows
        steps = {value for value in body.numbers("step").tolist() if value >= 0}
        for value in steps or ({step} if step >= 0 else ()):
            self._missing.add(value)
        self._redescribe = True

    def _run(self) -> None:
        described = time.monotonic()
        while True:
            with self._lock:
                # Frames are written as they come; only run.json waits for its turn.
                due = described + (_REDESCRIBE_SECONDS if self._redescribe else _DESCRIBE_SECONDS)
                self._lock.wait_for(lambda: self._queue or self._closing, timeout=due - time.monotonic())
                work = list(self._queue)
                self._queue.clear()
                if self._closing and not work:
                    break
                due = described + (_REDESCRIBE_SECONDS if self._redescribe else _DESCRIBE_SECONDS)
            for item in work:
                self._write(*item)
            if time.monotonic() >= due:
                with self._lock:
                    self._redescribe = False
                self._describe_now()
                described = time.monotonic()
        self._finish()

    def _write(self, body: CheckedBody, step: int, size: int) -> None:
        if self._redescribe and body.declared.name not in self._folder.streams:
            # What a crash leaves of a stream can be read where run.json declares the stream.
            self._describe_now()
        if self.state == "on":
            try:
                self._folder.append(body)
            except OSError as error:
                self._fail(
                    f"The recording stopped: {error.strerror or error}. What is recorded so far stays readable."
                )
        with self._lock:
            self._waiting_bytes -= size
            if self.state != "on":
                self._miss(body, step)

    def _fail(self, message: str) -> None:
        with self._lock:
            self.state = "failed"
            self.message = message
            self._redescribe = True

    def _describe_now(self) -> None:
        with self._lock:
            description = self._full_description()
            self._redescribe = False
        try:
            self._folder.write_description(description)
        except OSError as error:
            if self.state == "on":
                self._fail(
                    f"The recording stopped: {error.strerror or error}. What is recorded so far stays readable."
                )

    def _finish(self) -> None:
        self._describe_now()
        if self.state == "on":
            try:
                self._folder.pack()
                with self._lock:
                    self.state = "closed"
            except (OSError, pa.ArrowException) as error:
                self._fail(
                    f"The recording is complete but could not be packed: {error}. It stays readable as it is."
                )
        self._folder.close()
        self._describe_now()

    def _full_description(self) -> dict[str, Any]:
        return {**self._description, "missing_steps": self._missing.to_list()}
