"""Writes the run to disk from a thread of its own: lossless, or it says exactly what is missing."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa

from ..protocol import CheckedBody, Losses
from ..protocol.messages_generated import Recording, RunFile
from .options import HubError
from .recording_folder import RecordingFolder
from .stream_folder import StepRanges

_DESCRIBE_SECONDS = 5.0
_REDESCRIBE_SECONDS = 0.5
_MOST_WAIT_SECONDS = 15.0
_LATER = "; what comes waits as far as memory allows, and writing is tried again."
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_Item = tuple[CheckedBody, int, int]


class Recorder:
    """Records every frame that the hub passes on.

    The event loop only ever appends to a bounded queue here. When the disk fails, what waits stays for as
    long as it fits and writing is tried again and again; what did not fit is counted with its steps, and so
    is, until it is written, what waits.

    Parameters
    ----------
    description : dict
        First content of ``run.json``.
    queue_bytes : int
        Bound of what may wait for the disk.
    retry_seconds : float
        Wait after the first failure; it doubles with each that follows, up to 15 s.
    limit_bytes : int, optional
        What the streams may take on disk while they are recorded: the oldest steps are given up for newer
        ones, and named. As much as comes when absent.
    mode : int, optional
        Permissions of the run folder; as of ``make_run_folder`` when absent.
    resumes : bool
        Whether a recording goes on in the folder, which contains only earlier attempts.

    Raises
    ------
    HubError
        When the folder cannot be made, or may not be written. Where only writing its first ``run.json``
        fails, that is tried again like all that follows.
    """

    def __init__(
        self,
        path: Path,
        description: RunFile,
        queue_bytes: int,
        retry_seconds: float = 1.0,
        limit_bytes: int | None = None,
        *,
        mode: int | None = None,
        resumes: bool = False,
    ) -> None:
        self.state: Literal["on", "failed", "closed"] = "on"
        self.message: str | None = None
        self.cpu_seconds = 0.0
        """CPU time of the thread that records."""
        self._queue_bytes = queue_bytes
        self._limit = limit_bytes
        self._description = description
        self.overflow = Losses()
        """What came faster than it could be written; of the thread that puts."""
        self.sentences: list[str] = []
        """What is to be said of it."""
        self._bare_rows, self._bare_steps = 0, StepRanges()
        self._lost = _Lacking()
        self._given = StepRanges()
        # What waits while nothing can be written: lacking for now.
        self._unwritten = _Lacking()
        self._lock = threading.Condition()
        self._queue: deque[_Item] = deque()
        # The recorder's thread alone takes from it.
        self._work: deque[_Item] = deque()
        self._waiting_bytes = 0
        self._redescribe = False
        self._unsealed: str | None = None
        self._closing = False
        self._retry_seconds = retry_seconds
        self._tries = 0
        self._retry_at = 0.0
        try:
            self._folder = RecordingFolder(path, limit_bytes, mode=mode, resumes=resumes)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            self._describe()
        except OSError as error:
            if error.errno in _FORBIDDEN:
                raise _unwritable(path, error) from error
            # The training begins all the same, and its rows wait.
            self._fail(error.strerror or str(error))
        self._thread = threading.Thread(target=self._run, name="megalens-recorder", daemon=True)
        self._thread.start()

    @property
    def dropped_rows(self) -> int:
        """Rows that the recording lacks now, but for those that it gave up to stay within its bound."""
        return self._lost.rows + self._unwritten.rows

    def put(self, body: CheckedBody, step: int, size: int) -> None:
        """Hand over the rows of one frame of ``size`` bytes, with its newest step. Never waits."""
        with self._lock:
            ended = self.state == "closed" or self._closing
            if ended or self._waiting_bytes + size > self._queue_bytes:
                self._lose(body, step)
                if not ended:
                    self._name(body, step)
                return
            self._queue.append((body, step, size))
            self._waiting_bytes += size
            if self.state == "failed":
                self._unwritten.add(body, step)
            self._lock.notify()

    def describe(self, description: RunFile) -> None:
        """Give ``run.json`` new content, written soon."""
        with self._lock:
            self._description = description
            self._redescribe = True
            self._lock.notify()

    def status(self) -> Recording:
        """Return the ``recording`` member of ``status``."""
        with self._lock:
            result: Recording = {"state": self.state, "bytes": self._folder.bytes}
            if self._limit is not None:
                result["limit_bytes"] = self._limit
            if self.message:
                result["message"] = self.message[:500]
            if missing := self._missing_steps():
                result["missing_steps"] = missing
            return result

    def close(self, description: RunFile) -> None:
        """Write what waits, seal what takes no time and end the thread. Blocks.

        Called once more it brings ``run.json`` up to date.
        """
        with self._lock:
            closed_before = self._closing
            self._description = description
            self._closing = True
            self._lock.notify()
        self._thread.join()
        if closed_before and self.behind and not self._folder.deleted():
            self._describe_once()

    @property
    def behind(self) -> bool:
        """Whether rows came after the end that ``run.json`` does not yet list as missing."""
        return self._redescribe and not self._thread.is_alive()

    def totals(self) -> Iterator[str]:
        """Give the sentences that sum up what was given up, at the end."""
        yield from self.overflow.totals()
        with self._lock:
            rows, steps = self._bare_rows, self._bare_steps.to_list()
        if rows:
            yield (
                f"Large values of traced tensors of steps {steps[0][0]} to {steps[-1][1]} were given up "
                f"({rows:,} rows): the recording may take {(self._limit or 0) / 1e6:,.0f} MB. Their "
                "statistics are there."
            )

    def _name(self, body: CheckedBody, step: int) -> None:
        """Name rows for which there is no room: tensors by flag and layers."""
        size = f"{self._queue_bytes / 1e6:.3g} MB may wait"
        stream = body.declared.name
        of: dict[str, list[int]] = {f"Rows of {stream}": [-1] * body.rows}
        if stream == "tensors":
            of = {}
            for flag, layer in zip(body.texts("flag"), body.numbers("layer").tolist(), strict=True):
                of.setdefault(flag, []).append(layer)
        for what, layers in of.items():
            said = self.overflow.add(len(layers), "unwritten", what, step, set(layers), size)
            self.sentences += [] if said is None else [said]

    def _lose(self, body: CheckedBody, step: int) -> None:
        self._lost.add(body, step)
        self._redescribe = True

    def _missing_steps(self) -> list[list[int]]:
        every = StepRanges()
        for steps in (self._lost.steps, self._unwritten.steps, self._given):
            for first, last in steps.to_list():
                every.add(first, last)
        return every.to_list()

    # The recorder's thread.

    def _run(self) -> None:
        described = time.monotonic()
        while True:
            with self._lock:
                # Frames are written as they come; only run.json waits for its turn.
                due = described + (_REDESCRIBE_SECONDS if self._redescribe else _DESCRIBE_SECONDS)
                if self.state == "failed":
                    due = self._retry_at
                self._lock.wait_for(
                    lambda: self._closing or (self._queue and self.state == "on"),
                    timeout=due - time.monotonic(),
                )
                if self._closing:
                    break
                self._work.extend(self._queue)
                self._queue.clear()
            late = time.monotonic() >= due
            self.cpu_seconds = time.thread_time()
            if self.state == "on" or late:
                self._write_all(describe=late)
            if late:
                described = time.monotonic()
        self._finish()

    def _write_all(self, *, describe: bool) -> None:
        """Write ``run.json`` where that is due, and everything that waits, as far as possible."""
        if self._deleted():
            return
        try:
            if describe or self._folder.deleted():
                self._look_after_files()
                self._describe()
            while self._work:
                body, step, size = self._work[0]
                if self._redescribe and body.declared.name not in self._folder.streams:
                    # What a crash leaves of a stream can be read where run.json declares the stream.
                    self._describe()
                try:
                    self._folder.append(body)
                except (pa.ArrowException, ValueError, MemoryError):
                    # These rows alone cannot be written, now or later.
                    with self._lock:
                        self._lose(body, step)
                with self._lock:
                    self._work.popleft()
                    self._waiting_bytes -= size
                self._keep_newest()
            self._seal()
        except OSError as error:
            # It may have been deleted since the look above.
            if not self._deleted():
                self._fail(error.strerror or str(error))
            return
        if self.state == "failed":
            self._go_on()

    def _keep_newest(self) -> None:
        limit = f"The recording may take {(self._limit or 0) / 1e6:,.0f} MB: "
        for given in self._folder.keep_newest():
            with self._lock:
                if not given.values:
                    self._given.add(given.first_step, given.last_step)
                    self.message = f"{limit}its oldest steps are given up for newer ones."
                    self._redescribe = True
                    continue
                self._bare_rows += given.rows
                self._bare_steps.add(given.first_step, given.last_step)
                if not self._given:
                    self.message = f"{limit}values of its oldest tensors are given up for newer ones."

    def _seal(self) -> None:
        unsealed = self._folder.seal()
        if unsealed != self._unsealed:
            with self._lock:
                self._unsealed = unsealed
                self.message = unsealed or self.message

    def _deleted(self) -> bool:
        """Whether the recording was deleted and nothing new has come: then it stays deleted."""
        return not self._work and self._folder.deleted()

    def _look_after_files(self) -> None:
        gone = self._folder.mend(again=bool(self._work))
        if not gone:
            return
        with self._lock:
            for file in gone:
                self._lost.rows += file.rows
                if file.first_step is not None:
                    self._lost.steps.add(file.first_step, file.last_step)
            self.message = (
                "Files of the recording were removed while it ran; what they held is missing. It goes on "
                "in new ones."
            )

    def _fail(self, why: str) -> None:
        with self._lock:
            self._unwritten = _Lacking()
            for body, step, _ in (*self._work, *self._queue):
                self._unwritten.add(body, step)
            self.state = "failed"
            self.message = f"The recording stopped: {why}. What is recorded so far stays readable{_LATER}"
            self._redescribe = True
            self._retry_at = time.monotonic() + min(
                self._retry_seconds * 2 ** min(self._tries, 10), _MOST_WAIT_SECONDS
            )
            self._tries += 1

    def _go_on(self) -> None:
        with self._lock:
            self._tries = 0
            lacks = f"{self._lost.rows} rows are missing." if self._lost.rows else "Nothing is missing."
            self.state = "on"
            self._unwritten = _Lacking()
            self.message = f"The recording stopped for a while and goes on. {lacks}"
            self._redescribe = True

    def _describe(self) -> None:
        with self._lock:
            description: dict[str, object] = {**self._description, "missing_steps": self._missing_steps()}
            # Who reads that the run has ended expects all of its rows.
            self._redescribe = bool(self._work or self._queue)
            if self._redescribe:
                description["ended"] = None
        try:
            self._folder.write_description(description)
        except OSError:
            self._redescribe = True
            raise

    def _describe_once(self) -> None:
        with contextlib.suppress(OSError):
            self._describe()

    def _finish(self) -> None:
        self._work.extend(self._queue)
        self._queue.clear()
        self._write_all(describe=True)
        if self._deleted():
            with self._lock:
                self.state, self.message = "closed", "The recording was deleted."
            self._folder.close()
            return
        if self.state == "on":
            unsealed = self._folder.finish()
            with self._lock:
                self.state = "closed"
                self.message = unsealed or self.message
        else:
            with self._lock:
                # Nobody tries again: what waits is lost.
                self.message = (self.message or "").replace(_LATER, ".")
                for body, step, _ in self._work:
                    self._lost.add(body, step)
                self._work.clear()
                self._unwritten = _Lacking()
        self._folder.close()
        self._describe_once()


def _unwritable(path: Path, error: OSError) -> HubError:
    return HubError(
        f"Could not write the run folder in {path.parent}: {error.strerror or error}. "
        "Choose another folder for --record."
    )


class _Lacking:
    """Rows that a recording lacks, and their steps."""

    def __init__(self) -> None:
        self.rows = 0
        self.steps = StepRanges()

    def add(self, body: CheckedBody, step: int) -> None:
        self.rows += body.rows
        steps = {value for value in body.numbers("step").tolist() if value >= 0}
        for value in steps or ({step} if step >= 0 else ()):
            self.steps.add(value)
