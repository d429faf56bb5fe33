"""The producer thread's queue: the training thread adds tasks and never waits for them.

What a script logs: numbers (the stream ``scalars``) and checkpoints (rows of ``audit``).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ...protocol import FrameTemplate, shown_text, stream_schema
from ...protocol.arrow_columns import arrow_column
from ...protocol.messages_generated import Message
from ..coordinates import to_host
from ..errors import plain_text
from ..health import ProducerHealth

SCALARS = "scalars"
SCALARS_SECONDS = 0.2
"""How often numbers are sent that no other rows take along."""
MOST_SCALARS = 10_000
"""Numbers that wait; of more, those of the script are left out and of those on their way the oldest."""

AUDIT = "audit"
CHECKPOINT_BYTES = 512
"""About what one row takes while it waits."""
_LONGEST_NAME = 80


class ScalarRow(NamedTuple):
    """One number, not yet read where it is a tensor."""

    step: int
    time: float
    name: str
    value: float | Tensor
    unit: str


class ScalarLog:
    """Numbers logged since they were last taken; in the training thread, which reads none of them."""

    def __init__(self) -> None:
        self._rows: list[ScalarRow] = []
        self._on_device = False

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, step: int, name: str, value: Any, unit: str) -> None:
        """Add one number; a tensor is copied as it is now and read later."""
        if isinstance(value, Tensor):
            value = value.detach()
            if value.device.type == "cuda":
                value, self._on_device = to_host(value), True
            else:
                value = value.clone()
        if len(self._rows) < MOST_SCALARS:
            self._rows.append(ScalarRow(step, time.time(), name, value, unit))

    def take(self) -> tuple[Sequence[ScalarRow], Any]:
        """Return what was logged, and a device event after which the copies are complete."""
        rows, self._rows = self._rows, []
        if not self._on_device:
            return rows, None
        self._on_device = False
        # The producer thread waits for it, not this one.
        ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ready.record()
        return rows, ready


class ScalarQueue:
    """Numbers to be sent: with other rows, or a few times a second, as every message wakes viewers."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._rows: deque[ScalarRow] = deque(maxlen=MOST_SCALARS)
        self._sent_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def due(self) -> bool:
        """Whether the last ones were sent long enough ago."""
        return time.monotonic() - self._sent_at >= SCALARS_SECONDS

    def take(self, row: ScalarRow) -> float | None:
        """Take a number as it was logged, and return it; None where it is none. A tensor is read now."""
        try:
            value = float(row.value)
        except (TypeError, ValueError, RuntimeError, ArithmeticError):
            self._warn(
                f"{plain_text(row.name)} was logged with something that is not one number; it is left out."
            )
            return None
        self._rows.append(ScalarRow(row.step, row.time, plain_text(row.name), value, plain_text(row.unit)))
        return value

    def add(self, step: int, name: str, value: float, unit: str) -> None:
        """Take a number of the tracer's own."""
        self._rows.append(ScalarRow(step, time.time(), name, value, unit))

    def send(self, rank: int, send: Callable[[pa.RecordBatch, int], int]) -> None:
        """Send what waits; it stays when ``send`` returns that nothing went."""
        self._sent_at = time.monotonic()
        rows = list(self._rows)
        if rows and send(_table(rank, rows), max(row.step for row in rows)):
            self._rows.clear()


def _table(rank: int, rows: Sequence[ScalarRow]) -> pa.RecordBatch:
    steps, times, names, values, units = zip(*rows, strict=True)
    columns = [
        arrow_column(steps, pa.int64()),
        arrow_column(times, pa.float64()),
        arrow_column(np.full(len(rows), rank, np.int32)),
        arrow_column(names, pa.utf8()),
        arrow_column(np.array(values, np.float64)),
        arrow_column(units, pa.utf8()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=stream_schema(SCALARS))


def checkpoint_rows(saved: Any, step: int) -> dict[str, list[Any]]:
    """Return the row that says what was saved after a step.

    Only the last part of the path ``saved`` is recorded, and nothing of an address's query: others read the
    recording.
    """
    detail = {} if saved is None else {"name": _name_of(saved)}
    return {
        "step": [step],
        "time": [time.time()],
        "who": ["tracer"],
        "action": ["checkpoint"],
        "detail": [json.dumps(detail, ensure_ascii=False)],
    }


def _name_of(saved: Any) -> str:
    text = os.fsdecode(saved) if isinstance(saved, (bytes, os.PathLike)) else str(saved)
    if "://" in text:
        # Such as the signature of a storage's address.
        text = re.split(r"[?#]", text, maxsplit=1)[0]
    return shown_text(re.split(r"[/\\]", text.rstrip("/\\"))[-1], _LONGEST_NAME)


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
