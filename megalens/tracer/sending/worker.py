"""The producer thread's queue: the training thread adds tasks and never waits for them."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from ...protocol import FrameTemplate
from ...protocol.messages_generated import Message
from ..health import ProducerHealth
from .training_log import ScalarRow

log = logging.getLogger("megalens")

_MOST_WAITING = 100_000
_SHORT_NS = 20_000_000
"""Of steps that are shorter, several wake the thread once: each wake-up takes the interpreter from the
training.
"""
_LOOK_SECONDS = 1.0
_MOST_PATIENT_BYTES = 16 << 20
_NO_BOUND = 1 << 62
_WAKE = "there is something to do"


Rows: TypeAlias = pa.RecordBatch | FrameTemplate | Mapping[str, Sequence[Any]]
"""Rows of one stream: a batch of its schema, a template whose figures are set, or its columns by name."""


class IGatherer(Protocol):
    """Where parts from several processes wait until they are complete."""

    @property
    def waiting(self) -> bool: ...

    @property
    def done(self) -> bool:
        """Whether nothing will come any more."""

    def send_ready(self, *, everything: bool = False) -> None:
        """Send what is complete; with ``everything`` wait no more."""


@dataclass(frozen=True, slots=True)
class Task:
    run: Callable[[], Any]
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class StepCost:
    """The end of a step, or of a phase outside of steps.

    Attributes
    ----------
    wall_ns : int
        How long it took; 0 outside of steps.
    spent_ns : int
        Time of the training thread inside of the instruments.
    control : bool
        Whether it was left untraced, to compare with.
    ready : Any
        A device event after which copies of the scalars are complete; None on the CPU.
    """

    step: int
    wall_ns: int = 0
    spent_ns: int = 0
    control: bool = False
    scalars: Sequence[ScalarRow] = ()
    ready: Any = None


class Worker:
    """Runs tasks in a thread of its own. As it is, for processes that send nothing to a hub.

    Back-pressure: the training thread adds the bytes that it hands over, the producer thread those that it
    has dealt with; the difference waits in the queue. Each figure is written by one thread only, so that
    neither needs a lock, and a stale reading only refuses a little early. What is refused is given up by
    the caller, because holding the step up is never an answer.

    Wake-ups: each takes the interpreter, and a processor's cache, from the training. While nobody looks, what
    is patient does not wake the thread; it looks by itself at least once a second, and then sends several
    steps together.

    ``queue_bytes`` may wait before the newest tasks are refused. A larger task is taken where nothing waits:
    its memory is there already, and a step that is larger than the bound still arrives. A quarter is for
    small rows, so that large ones do not take their place.
    """

    run_id: str | None = None

    def __init__(self, queue_bytes: int = 64 << 20) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.queue_bytes = queue_bytes
        self._waiting: deque[Task] = deque()
        self._costs: deque[tuple[StepCost, int]] = deque()
        """Each with how many tasks had been handed over before."""
        self._unreported_ns = 0
        self._awake = False
        """Whether something since the end of the last step was not patient."""
        self.watched = True
        """Whether somebody looks, as far as is known."""
        self._tasks = self._tasks_done = 0
        self._closing = False
        self._finished = True
        self._cpu_ns = 0
        self._put_bytes = 0
        self._taken_bytes = 0
        self.health = ProducerHealth()
        self.connected = threading.Event()
        self.untraced = False
        """True once there is nobody left to send to: the tracer takes its hooks off."""
        self._thread = threading.Thread(target=self._run, name="megalens-producer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # Any thread.

    def task(self, run: Callable[[], Any], nbytes: int = 0, *, patient: bool = False) -> bool:
        """Run something after all that was handed over before; False where too much waits. It must not raise.

        What is ``patient`` may wait for up to a second while nobody looks.
        """
        before = self._put_bytes - self._taken_bytes
        if nbytes and before and before + nbytes > self.queue_bytes:
            return False
        nbytes = min(nbytes, self._for_large)
        waiting = before + nbytes
        self._put_bytes += nbytes
        self._tasks += 1
        self._waiting.append(Task(run, nbytes))
        if self.watched or not patient or waiting > _MOST_PATIENT_BYTES:
            self._awake = True
            self.wake()
        return True

    @property
    def _for_large(self) -> int:
        return self.queue_bytes * 3 // 4

    def room(self, *, large: bool = False) -> int:
        """Return how many bytes may be handed over, of large rows or of any; no bound where none wait."""
        waiting = self._put_bytes - self._taken_bytes
        return max(0, (self._for_large if large else self.queue_bytes) - waiting) if waiting else _NO_BOUND

    def wake(self) -> None:
        """Let the thread look at what waits, now."""
        self._queue.put(_WAKE)

    def step_ended(self, cost: StepCost) -> None:
        """Hand over what a step cost, after what it gave.

        Where far too much waits for a hub that stands still, its numbers are counted as lost.
        """
        if len(self._costs) >= _MOST_WAITING:
            self.health.lose(len(cost.scalars), "stalled", "Logged numbers", cost.step)
            return
        self._costs.append((cost, self._tasks))
        self._unreported_ns += cost.wall_ns
        looked_at = self.watched and (bool(cost.scalars) or self._unreported_ns >= _SHORT_NS)
        if looked_at or self._awake or not cost.wall_ns:
            self._unreported_ns = 0
            self._awake = False
            self.wake()

    def reply(self, make: Callable[[], Message]) -> None:
        """Send a control message after all that was handed over before; only producers do."""

    def caught_up(self) -> bool:
        """Return whether everything that was handed over has been taken."""
        return not self._waiting and self._queue.empty()

    @property
    def alive(self) -> bool:
        """Whether the thread takes what is handed over."""
        return self._thread.is_alive()

    @property
    def here(self) -> bool:
        """Whether the caller is in the thread itself."""
        return threading.current_thread() is self._thread

    def close(self, timeout: float = 10.0, *, finished: bool = True) -> None:
        """Send what waits, and a shutdown message where the training finished; end the thread. Safe twice."""
        if not self._closing:
            self._closing = True
            self._finished = finished
            self._queue.put(None)
        self._thread.join(timeout)

    # The thread.

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # A fault here must be reported, and must end nothing but the tracing.
            self.health.warn(
                f"Tracing has stopped after an error of its own: {type(error).__name__}: {error}"
            )
            log.debug("producer thread", exc_info=True)
            self.untraced = True
        finally:
            self._leave()

    def _loop(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                item = _WAKE
            self._do_all()
            self._count_all()
            if item is None:
                break

    @contextlib.contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Report an error instead of raising it: a viewer or an instrument ends no tracing."""
        try:
            yield
        except Exception as error:
            self.health.failed("The thread that sends", error)

    def _leave(self) -> None:
        """Close what the thread owned."""

    def _do_all(self) -> None:
        """Do the tasks that wait now; others come while these are done."""
        for _ in range(len(self._waiting)):
            task = self._waiting.popleft()
            try:
                with self._unharmed():
                    task.run()
            finally:
                self._taken_bytes += task.nbytes
                self._tasks_done += 1

    def _count_all(self) -> None:
        """Count the cost of steps that have ended, and of which everything else has been dealt with."""
        while self._costs and self._costs[0][1] <= self._tasks_done:
            with self._unharmed():
                self._count(self._costs.popleft()[0])

    def _count(self, cost: StepCost) -> None:
        self.health.step = max(self.health.step, cost.step)
        if cost.wall_ns:
            cpu = time.thread_time_ns()
            self.health.step_ended(cost.spent_ns, cpu - self._cpu_ns, cost.wall_ns)
            self._cpu_ns = cpu
