"""A thread that takes batches from the training thread, which never waits for it."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..health import Health
from ..tensors.batch import RAW_BYTES, Batch, Row, count_rows, finish_rows
from ..tensors.staging import Stage, StagePool

__all__ = ["Task", "Pieces", "Reply", "Worker"]

log = logging.getLogger("megalens")

_SCRATCH = RAW_BYTES // 4


@dataclass(frozen=True)
class Reply:
    """A control message to send, in its order among the batches."""

    make: Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Task:
    """Something to be done in the thread, in its order among the batches."""

    run: Callable[[], None]


@dataclass(frozen=True)
class Pieces:
    """What another rank of the tensor-parallel group sent."""

    rank: int
    meta: dict[str, Any]
    payload: memoryview


class Worker:
    """Takes batches from a queue in a thread of its own.

    Parameters
    ----------
    stages : StagePool
        Where the memory of a batch goes back to.
    queue_bytes : int
        Bytes that may wait before the newest rows are given up.
    """

    run_id: str | None = None

    def __init__(self, stages: StagePool, queue_bytes: int = 64 << 20) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._queue_bytes = queue_bytes
        self._stages = stages
        self._tiles = StagePool()
        self._scratch = Stage(_SCRATCH)
        self._closing = False
        self._finished = True
        self._spent_ns = self._cpu_ns = 0
        # Each of the two is written by one thread only, so that neither needs a lock.
        self._put_bytes = 0
        self._taken_bytes = 0
        self.health = Health()
        self.connected = threading.Event()
        self.untraced = False
        """True once there is nobody left to send to: the tracer takes its hooks off."""
        self._thread = threading.Thread(target=self._run, name="megalens-producer", daemon=True)

    # Training thread.

    def put(self, batch: Batch) -> None:
        """Hand over a batch. Never waits: when too much is waiting, its rows are given up and counted."""
        if batch.nbytes and self._put_bytes - self._taken_bytes + batch.nbytes > self._queue_bytes:
            self.health.given_up_rows += count_rows(batch.rows)
            batch.rows, batch.nbytes = [], 0
        self._put_bytes += batch.nbytes
        self._queue.put(batch)

    def reply(self, make: Callable[[], dict[str, Any]]) -> None:
        """Send a control message after the batches that were handed over before."""
        self._queue.put(Reply(make))

    def task(self, run: Callable[[], None]) -> None:
        """Have something done after the batches that were handed over before; it must not raise."""
        self._queue.put(Task(run))

    @property
    def alive(self) -> bool:
        """Whether anybody takes what is handed over."""
        return self._thread.is_alive()

    def close(self, timeout: float = 10.0, *, finished: bool = True) -> None:
        """Send what is waiting, say goodbye where the training finished, and end the thread. Safe twice."""
        if not self._closing:
            self._closing = True
            self._finished = finished
            self._queue.put(None)
        self._thread.join(timeout)

    @property
    def hub_pid(self) -> int | None:
        """Process of our own hub."""
        return None

    # The thread.

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # A fault here must be said, and must end nothing but the tracing.
            self.health.warn(
                f"Tracing has stopped after an error of its own: {type(error).__name__}: {error}"
            )
            log.debug("producer thread", exc_info=True)
            self.untraced = True
        finally:
            self._leave()

    def _loop(self) -> None:
        raise NotImplementedError

    def _leave(self) -> None:
        """Let go of what the thread held."""

    def _finish(self, batch: Batch) -> tuple[list[Row], Stage]:
        """Wait for a batch's copies and make its tiles; the rows lie in the stage."""
        if batch.ready is not None:
            batch.ready.synchronize()
        self.health.step = max(self.health.step, batch.step)
        if batch.probes is not None:
            self.health.probes = batch.probes
            if batch.probes[0] == 0 and batch.probes[1]:
                self.health.warn(
                    "No probe fired in a step that was to be traced. A compiled model (torch.compile) calls no hooks: "
                    "run it uncompiled to see its tensors."
                )
        self._spent_ns += batch.spent_ns
        stage = self._tiles.take()
        rows = finish_rows(batch.rows, stage, self._scratch)
        if batch.stage is not None:
            self._stages.give(batch.stage)
        return rows, stage

    def _step_ended(self, wall_ns: int) -> None:
        """Count what a step cost."""
        self.health.step_ended()
        cpu = time.thread_time_ns()
        self.health.overhead.add(self._spent_ns + cpu - self._cpu_ns, wall_ns)
        self._spent_ns, self._cpu_ns = 0, cpu
