"""The tracer that a training loop holds."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from .announcement import announcement
from .capture import Capture
from .config import PHASES, Plan, change_plan, settings_from
from .errors import TracerError
from .hub_process import HubAddress, HubProcess
from .points import ModelPoints
from .producer import Producer
from .version import version

__all__ = ["StepHandle", "Tracer"]

_clock = time.perf_counter_ns


class _StepScope:
    """``with tracer.step():``; one object serves all steps."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __enter__(self) -> None:
        self._tracer._begin_step()

    def __exit__(self, *error: object) -> None:
        self._tracer._end_step()


class StepHandle:
    """What :meth:`Tracer.wrap` gives: ``remove()`` takes it back. Safe twice."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove: Callable[[], None] | None = remove

    def remove(self) -> None:
        """Let optimizer steps end no more steps of the tracer."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()


class Tracer:
    """Traces one model. Made by :func:`megalens.trace`.

    Nothing that is called during training raises, waits or synchronises a device: what goes wrong is counted and said in :meth:`status`.

    Parameters
    ----------
    points : ModelPoints
        The model and its trace points.
    plan : Plan
        What to trace from the first step on.
    address : HubAddress or None
        The hub; None for a tracer that sends nothing.
    process : HubProcess or None
        The hub's process, where it is ours.
    name : str, optional
        Name of the run.
    folders : sequence of Path
        Where vector files may lie.
    decode : callable, optional
        Text of one token id.
    """

    def __init__(
        self,
        points: ModelPoints,
        plan: Plan,
        address: HubAddress | None,
        process: HubProcess | None = None,
        *,
        name: str | None = None,
        folders: Sequence[Path] = (),
        decode: Callable[[int], str] | None = None,
    ) -> None:
        self._points = points
        self._name = name
        self._folders = tuple(folders)
        self._lock = threading.Lock()
        self._accepted = plan
        self._pending: deque[tuple[Plan, str | None]] = deque()
        self._notes: deque[str] = deque(maxlen=20)
        self._handles: list[StepHandle] = []
        self._scope = _StepScope(self)
        self._depth = 0
        self._started = 0
        self._began_ns = 0
        self._phases = 0
        self._closed = False
        self._announced = False
        self._rank, self._world = _rank_and_world()
        self._producer: Producer | None = None
        self._capture = Capture(points.roots[0], points.flags, self._warn, self._hand_over)
        self._capture.follow(plan)
        if address is not None:
            self._producer = Producer(
                address,
                process,
                rank=self._rank,
                peer={"name": "tracer", "version": version()},
                announce=self._announcement,
                configure=self._configure_for_hub,
                stages=self._capture.stages,
                decode=decode,
            )
            atexit.register(self.close)

    def __enter__(self) -> Tracer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Tracer {self._name or self.run_id or 'without a hub'}, step {self._started}, flags {list(self._accepted.flags)}>"

    # Around the training.

    def step(self) -> _StepScope:
        """Return a context manager around one optimizer step. Forward passes inside are its micro-batches, counted from 0."""
        return self._scope

    def wrap(self, optimizer: torch.optim.Optimizer) -> StepHandle:
        """End a step at each ``optimizer.step()`` from now on, instead of ``with tracer.step()``.

        Returns
        -------
        StepHandle
            Its ``remove()`` undoes it.
        """

        def stepped(*_: Any) -> None:
            if self._depth == 1 and not self._closed:
                self._end_step()
                self._begin_step()

        hook = optimizer.register_step_post_hook(stepped)

        def undo() -> None:
            hook.remove()
            if self._depth:
                self._abandon_step()

        handle = StepHandle(undo)
        self._handles.append(handle)
        self._begin_step()
        return handle

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Say that forward passes inside are ``'eval'`` or ``'generate'``, no training. They carry the step that began last."""
        if name not in PHASES:
            raise TracerError(f"A phase is one of {', '.join(PHASES)}; {name!r:.50} came.")
        capture = self._capture
        before = (capture.phase, capture.micro_batch, capture.scope)
        inside = self._depth > 0 or self._phases > 0
        self._phases += 1
        capture.begin(self._started, name)
        try:
            yield
        finally:
            self._phases -= 1
            if inside:
                capture.resume(*before)
            else:
                self._flush(probes=capture.fired())
                capture.pause()

    def log(self, *, unit: str = "", **values: Any) -> None:
        """Report numbers of the step that began last: ``tracer.log(loss=loss, unit="nats/token")``.

        Parameters
        ----------
        unit : str
            Unit of all of them.
        **values : float or torch.Tensor
            Numbers or tensors of one element. A tensor is copied now and read later, in another thread.
        """
        if self._producer is None:
            return
        started = _clock()
        for name, value in values.items():
            self._capture.scalar(name, value, unit)
        self._capture.spent_ns += _clock() - started

    # Settings.

    @property
    def run_id(self) -> str | None:
        """Id of the run as its hub gave it; None without a hub or before the first hello."""
        return None if self._producer is None else self._producer.run_id

    @property
    def config(self) -> dict[str, Any]:
        """The settings that were accepted last, as the ``Config`` of messages. They are in force from the next step at the latest."""
        return self._accepted.config

    def configure(self, patch: Mapping[str, Any]) -> int:
        """Change what is traced, from the next step on.

        Parameters
        ----------
        patch : mapping
            Flag names with a compressor, a ``FlagSetting`` or None for off. Other flags stay.

        Returns
        -------
        int
            The first step to which it can apply.

        Raises
        ------
        ProtocolError
            With the field at fault; then nothing has changed.
        """
        with self._lock:
            return self._accept(settings_from(patch), None)

    def connected(self, timeout: float = 0.0) -> bool:
        """Return whether a hub has this run, waiting up to ``timeout`` seconds for it."""
        return self._producer is not None and self._producer.connected.wait(timeout)

    def status(self) -> dict[str, Any]:
        """Return how the tracing goes: the ``status`` message that viewers get, without what only the hub knows."""
        if self._producer is None:
            status: dict[str, Any] = {"type": "status", "state": "idle", "step": self._started}
        else:
            status = self._producer.health.status()
        status["warnings"] = list(dict.fromkeys([*status.get("warnings", []), *self._notes]))[:20]
        return status

    def close(self) -> None:
        """Send what is waiting, tell the hub that the training is finished, and take every hook off. Safe twice."""
        if self._closed:
            return
        for handle in self._handles:
            handle.remove()
        self._flush()
        self._closed = True
        self._capture.release()
        if self._producer is not None:
            self._producer.close()
            atexit.unregister(self.close)

    # The step path.

    def _begin_step(self) -> None:
        now = _clock()
        self._depth += 1
        if self._depth > 1 or self._closed:
            return
        self._began_ns = now
        self._started += 1
        if self._pending:
            self._apply()
        self._capture.begin(self._started, "train")
        self._capture.spent_ns += _clock() - now

    def _end_step(self) -> None:
        self._depth -= 1
        if self._depth > 0 or self._closed:
            return
        now = _clock()
        capture = self._capture
        self._flush(probes=capture.fired(), wall_ns=now - self._began_ns)
        capture.pause()
        # It counts for the next step: this one's batch has left.
        capture.spent_ns += _clock() - now

    def _abandon_step(self) -> None:
        self._depth = 0
        self._started -= 1
        self._flush()
        self._capture.pause()

    def _flush(self, probes: tuple[int, int, list[str]] | None = None, wall_ns: int = 0) -> None:
        producer, capture = self._producer, self._capture
        batch = capture.take()
        if producer is None:
            if batch.stage is not None:
                capture.stages.give(batch.stage)
            return
        if producer.untraced:
            # The hub is gone for good: leave the model as it was.
            capture.release()
            return
        batch.probes, batch.wall_ns = probes, wall_ns
        if batch.rows or batch.scalars or wall_ns:
            producer.put(batch)
        if not self._announced and capture.positions is not None:
            # Sizes are known now.
            self._announced = True
            producer.reply(self._announcement)

    def _hand_over(self) -> None:
        """Let the producer begin with what a forward pass gave."""
        producer = self._producer
        # Without one, the end of the step sees to it.
        if producer is not None and not producer.untraced:
            producer.put(self._capture.take())

    def _apply(self) -> None:
        producer = self._producer
        ids = []
        while self._pending:
            plan, who = self._pending.popleft()
            ids.append(who)
        if producer is not None and producer.untraced:
            return
        self._capture.follow(plan)
        if producer is None:
            return
        step, config = self._started, plan.config
        for who in ids:
            if who is None:
                producer.reply(self._announcement)
            else:
                answer = {"type": "configured", "id": who, "applied": True, "step": step, "config": config}
                producer.reply(lambda answer=answer: answer)  # type: ignore[misc]

    # Other threads.

    def _configure_for_hub(self, patch: dict[str, Any], who: str) -> dict[str, Any]:
        with self._lock:
            step = self._accept(patch, who)
            return {"type": "configured", "id": who, "applied": False, "step": step, "config": self.config}

    def _accept(self, patch: Mapping[str, Any], who: str | None) -> int:
        plan = change_plan(self._accepted, patch, self._points, self._folders)
        self._accepted = plan
        self._pending.append((plan, who))
        return self._started + 1

    def _warn(self, text: str) -> None:
        if text in self._notes:
            return
        self._notes.append(text)
        if self._producer is not None:
            self._producer.health.warn(text)
        else:
            logging.getLogger("megalens").warning("%s", text)

    def _announcement(self) -> dict[str, Any]:
        return announcement(
            self._points,
            config=self.config,
            positions=self._capture.positions,
            rank=self._rank,
            world_size=self._world,
            name=self._name,
        )


def _rank_and_world() -> tuple[int, int]:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
