"""The engine as the package uses it: one for each process, started on first use."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from .process import BUNDLE, EngineError, EngineProcess

if TYPE_CHECKING:
    from ...runs.answers import RunAnswers

Progress = Callable[[int, int, str], object]
"""Called with (done, total, what is being done). Raise from it to cancel."""

_TIMEOUT = 120.0
_LOOK_SECONDS = 0.1


class Asked(Protocol):
    """Answers a job's questions: JSON and bytes."""

    def __call__(self, method: str, body: Mapping[str, Any]) -> tuple[Any, bytes | memoryview]:
        """Answer one question. An exception with ``message``, ``code`` and ``field`` is passed to the job."""
        ...


class Engine:
    """Runs jobs in a child process, one at a time, from any thread. A dead or abandoned child is replaced.

    ``bounds`` are ``most_memory`` and ``most_data`` of :class:`EngineProcess`.
    """

    def __init__(self, bundle: Path = BUNDLE, **bounds: int) -> None:
        self._bundle = bundle
        self._bounds = bounds
        self._lock = threading.Lock()
        self._process: EngineProcess | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def warm_up(self) -> None:
        """Start the child in advance without waiting for it. Raises nothing."""
        if self._lock.acquire(blocking=False):
            try:
                self._ready()
            except EngineError:
                pass
            finally:
                self._lock.release()

    def run(
        self,
        name: str,
        args: Mapping[str, Any],
        asked: Asked,
        *,
        progress: Progress | None = None,
        timeout: float = _TIMEOUT,
    ) -> tuple[Any, bytes]:
        """Run a job and return its result: JSON and bytes.

        Parameters
        ----------
        name, args : str, mapping
            As ``src/engine/jobs.ts`` knows it. Texts may have any character.
        asked : callable
            Answers the job's questions, in this thread.
        progress : callable, optional
            Takes the job's progress.
        timeout : float
            Seconds for the engine, without the time in which it waits for answers.

        Raises
        ------
        EngineError
            Why it did not finish.
        """
        with self._lock:
            is_restart = self._process is not None
            process = self._ready()
            try:
                try:
                    return _run(process, name, args, asked, progress, timeout)
                except _NeverBegun:
                    if not is_restart:
                        raise
                    # It was ended while it waited, which does not show at once.
                    self._drop()
                    return _run(self._ready(), name, args, asked, progress, timeout)
            except _JobFailed as failed:
                raise failed.error from None
            except BaseException:
                # In the middle of a job, or dead: either way it is of no use to the next one.
                self._drop()
                raise

    def close(self) -> None:
        """End the child. Safe twice; a later job starts another."""
        # Without the lock: at exit nobody waits for the job of an abandoned thread.
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def forget(self) -> None:
        """Drop the child in a forked process, which starts one of its own."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process is not None:
            process.forget()

    def _ready(self) -> EngineProcess:
        if self._process is not None and not self._process.alive:
            self._drop()
        if self._process is None:
            self._process = EngineProcess(self._bundle, **self._bounds)
        return self._process

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()


class _JobFailed(Exception):
    """A job's own error: the engine remains usable."""

    def __init__(self, error: EngineError) -> None:
        self.error = error


class _NeverBegun(EngineError):
    """The child ended before it took the job."""


def _run(
    process: EngineProcess,
    name: str,
    args: Mapping[str, Any],
    asked: Asked,
    progress: Progress | None,
    timeout: float,
) -> tuple[Any, bytes]:
    process.send({"type": "job", "name": name, "args": args})
    left, begun = timeout, False
    while True:
        began = time.monotonic()
        try:
            frame = process.receive(min(left, _LOOK_SECONDS))
        except EngineError as error:
            if not begun and error.code == "ended":
                raise _NeverBegun(error.message, code="ended") from error
            raise
        left -= time.monotonic() - began
        if frame is None:
            if left <= 0:
                raise EngineError(
                    f"The engine did not finish within {timeout:g} s. Choose fewer layers or steps.",
                    code="timeout",
                )
            continue
        message, body = frame
        kind = message.get("type")
        if kind == "begun":
            begun = True
        elif kind == "ask":
            _answer(process, message, asked)
        elif kind == "progress" and progress is not None:
            progress(int(message["done"]), int(message["total"]), str(message["words"]))
        elif kind == "done":
            return message.get("json"), body
        elif kind == "failed":
            raise _JobFailed(
                EngineError(str(message["message"]), code=str(message["code"]), field=message.get("field"))
            )


def _answer(process: EngineProcess, message: Mapping[str, Any], asked: Asked) -> None:
    ask = message["ask"]
    try:
        json, body = asked(str(message["method"]), message["body"])
    except Exception as error:
        sentence = getattr(error, "message", None)
        if sentence is None:
            raise
        # The job may continue without: it explains why a picture is empty.
        code, field = getattr(error, "code", "failed"), getattr(error, "field", None)
        process.send({"type": "refusal", "ask": ask, "code": code, "message": sentence, "field": field})
        return
    process.send({"type": "answer", "ask": ask, "json": json}, body)


_engine = Engine()

Answers: TypeAlias = "Mapping[str, RunAnswers] | Callable[[str], RunAnswers | None]"
"""The runs that a job may ask, by id, or a function that opens them."""


def run_job(
    name: str,
    args: Mapping[str, Any],
    answers: Answers,
    *,
    progress: Progress | None = None,
    timeout: float = _TIMEOUT,
) -> tuple[Any, bytes]:
    """Run a job about runs in this process's engine; ``answers`` are the runs by id, or None."""
    opened = answers if callable(answers) else answers.get

    @cache
    def answers_of(run_id: str) -> RunAnswers:
        found = opened(run_id)
        if found is None:
            raise EngineError(f"There is no run {run_id!r:.120} here.", code="not-found", field="run")
        return found

    def asked(method: str, body: Mapping[str, Any]) -> tuple[Any, bytes | memoryview]:
        return answers_of(str(body["run"])).answer(method, body)

    return _engine.run(name, args, asked, progress=progress, timeout=timeout)


def warm_up() -> None:
    """Start this process's engine ahead of its first job."""
    _engine.warm_up()


atexit.register(_engine.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_engine.forget)
