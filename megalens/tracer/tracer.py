"""The tracer that a training loop holds."""

from __future__ import annotations

import atexit
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from .config import PHASES, TracingPlan, settings_from
from .coordinator import Coordinator
from .errors import TracerError
from .moments.logger import StatisticsLogger
from .perturb import Installed, install_perturbations
from .sending.hub_process import HubAddress, HubProcess
from .sending.peers import Rendezvous, StepStart
from .tensors.capture import Capture
from .tensors.points import ModelPoints

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
    plan : TracingPlan
        What to trace from the first step on.
    address : HubAddress or None
        The hub; None where rank 0 says where it is, or for a tracer that sends nothing.
    process : HubProcess or None
        The hub's process, where it is ours.
    rendezvous : Rendezvous, optional
        How the other processes of the job are found.
    name : str, optional
        Name of the run.
    folders : sequence of Path
        Where vector files may lie.
    decode : callable, optional
        Text of one token id.
    controls : sequence of str
        What viewers may do beyond looking.
    first_step : int
        Number of the first step.
    hubless : bool
        Whether there is no hub and yet something to do: what is logged goes to files.
    """

    def __init__(
        self,
        points: ModelPoints,
        plan: TracingPlan,
        address: HubAddress | None,
        process: HubProcess | None = None,
        *,
        rendezvous: Rendezvous | None = None,
        name: str | None = None,
        folders: Sequence[Path] = (),
        decode: Callable[[int], str] | None = None,
        controls: Sequence[str] = (),
        first_step: int = 1,
        hubless: bool = False,
    ) -> None:
        self._points = points
        self._name = name
        self._handles: list[StepHandle] = []
        self._scope = _StepScope(self)
        self._depth = 0
        self._started = first_step - 1
        self._began_ns = self._tail_ns = 0
        self._phases = 0
        self._closed = self._announced = self._control = self._looked = False
        self._perturbed: Installed | None = None
        self._capture = Capture(points, self._warn, self._hand_over)
        self._capture.follow(plan)
        self._job = Coordinator(
            points,
            plan,
            address,
            process,
            rendezvous,
            self._capture,
            name=name,
            folders=folders,
            decode=decode,
            controls=controls,
            first_step=first_step,
            hubless=hubless,
        )
        self._statistics: StatisticsLogger | None = None
        # Numbers of the first replica, from whoever sends.
        self._logs = self._job.worker is not None and points.place.leads and points.place.dp == 0
        if self._job.worker is not None:
            atexit.register(self._at_exit)

    def __enter__(self) -> Tracer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._close(finished=kind is None or not issubclass(kind, Exception))

    def __repr__(self) -> str:
        return f"<Tracer {self._name or self.run_id or 'without a hub'}, step {self._started}, flags {list(self._job.schedule.accepted.flags)}>"

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
        saved, scope = capture.save(), capture.scope
        inside = self._depth > 0 or self._phases > 0
        self._phases += 1
        capture.begin(self._started, name)
        if self._statistics is not None:
            self._statistics.pause(True)
        try:
            yield
        finally:
            self._phases -= 1
            if self._statistics is not None:
                self._statistics.pause(self._phases > 0)
            if inside:
                capture.resume(saved, scope)
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
            Of data-parallel replicas the first one's are kept.
        """
        if not self._logs:
            return
        started = _clock()
        for name, value in values.items():
            self._capture.scalar(name, value, unit)
        self._capture.spent_ns += _clock() - started

    # Settings.

    @property
    def run_id(self) -> str | None:
        """Id of the run as its hub gave it; None without a hub or before the first hello."""
        return None if self._job.worker is None else self._job.worker.run_id

    @property
    def hub_pid(self) -> int | None:
        """Process id of the hub, where this tracer started it."""
        return None if self._job.worker is None else self._job.worker.hub_pid

    @property
    def config(self) -> dict[str, Any]:
        """The settings that were accepted last, as the ``Config`` of messages. They are in force from the next step at the latest."""
        return self._job.schedule.accepted.config

    def configure(self, patch: Mapping[str, Any]) -> int:
        """Change what is traced, from the next step on.

        In a job of several processes rank 0 asks all of them to change at one step; what is called on the others is checked and left to rank 0.

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
        return self._job.change(settings_from(patch))

    def connected(self, timeout: float = 0.0) -> bool:
        """Return whether a hub has this run, waiting up to ``timeout`` seconds for it."""
        worker = self._job.worker
        return worker is not None and worker.connected.wait(timeout)

    def status(self) -> dict[str, Any]:
        """Return how the tracing goes: the ``status`` message that viewers get, without what only the hub knows."""
        return self._job.status()

    def close(self) -> None:
        """Send what is waiting, tell the hub that the training is finished, and take every hook off. Safe twice."""
        self._close(finished=True)

    def _at_exit(self) -> None:
        # The interpreter leaves here what it has printed a traceback of.
        failure = getattr(sys, "last_type", None)
        self._close(finished=failure is None or not issubclass(failure, Exception))

    def _close(self, *, finished: bool) -> None:
        if self._closed:
            return
        for handle in self._handles:
            handle.remove()
        self._flush()
        self._closed = True
        self._release()
        self._job.close(finished)
        atexit.unregister(self._at_exit)

    # The step path.

    def _begin_step(self) -> None:
        now = _clock()
        self._depth += 1
        if self._depth > 1 or self._closed:
            return
        turn = self._job.schedule.at(self._started + 1)
        # What somebody asked the training to wait is no cost of tracing.
        now += int(turn.waited * 1e9)
        self._began_ns = now
        self._started += 1
        if turn.plan is not None or turn.ids:
            self._apply(turn)
        self._control = self._job.budget.control(self._started)
        self._capture.begin(self._started, "train", turn.held or self._control)
        self._capture.spent_ns += _clock() - now
        if self._statistics is not None:
            self._statistics.step_begins(self._started)

    def _end_step(self) -> None:
        self._depth -= 1
        if self._depth > 0 or self._closed:
            return
        if self._statistics is not None:
            self._statistics.step_ends()
        now = _clock()
        capture = self._capture
        # What the end of a step costs is counted in the next one's time: this one's batch leaves now.
        self._flush(probes=capture.fired(), wall_ns=now - self._began_ns + self._tail_ns)
        capture.pause()
        if self._perturbed is not None:
            self._look_at_perturbed(self._perturbed)
        self._tail_ns = _clock() - now
        capture.spent_ns += self._tail_ns

    def _abandon_step(self) -> None:
        self._depth = 0
        self._started -= 1
        if self._statistics is not None:
            self._statistics.step_abandoned()
        self._flush()
        self._capture.pause()

    def _flush(self, probes: tuple[int, int, list[str]] | None = None, wall_ns: int = 0) -> None:
        worker, capture = self._job.worker, self._capture
        batch = capture.take()
        if worker is None:
            if batch.stage is not None:
                capture.stages.give(batch.stage)
            return
        if worker.untraced:
            # The hub is gone for good: leave the model as it was.
            self._release()
            return
        batch.probes, batch.wall_ns, batch.control = probes, wall_ns, self._control
        if batch.rows or batch.scalars or wall_ns:
            worker.put(batch)
        if not self._announced and capture.positions is not None:
            # Sizes are known now.
            self._announced = True
            worker.reply(self._job.announcement)

    def _hand_over(self) -> None:
        """Let the producer begin with what a forward pass gave."""
        worker = self._job.worker
        # Without one, the end of the step sees to it.
        if worker is not None and not worker.untraced:
            worker.put(self._capture.take())

    def _apply(self, turn: StepStart) -> None:
        worker = self._job.worker
        if worker is not None and worker.untraced:
            return
        if turn.plan is not None:
            self._capture.version = turn.version
            self._perturb(None)
            self._capture.follow(turn.plan)
            self._perturb(turn.plan)
        self._job.applied(turn, self._started)

    def _perturb(self, plan: TracingPlan | None) -> None:
        installed, self._perturbed = self._perturbed, None
        self._looked = False
        if installed is not None:
            installed()
        if plan is not None and plan.perturb is not None:
            self._perturbed = install_perturbations(self._points, plan.perturb, self._capture, self._warn)

    def _look_at_perturbed(self, perturbed: Installed) -> None:
        self._job.perturbed_steps += perturbed.last_step == self._started
        if not self._looked:
            self._looked = True
            unfired = perturbed.unfired()
            if unfired:
                more = f" and {len(unfired) - 5} more" if len(unfired) > 5 else ""
                self._warn(
                    f"Step {self._started} did not reach what was to be perturbed: {', '.join(unfired[:5])}{more}. "
                    "A compiled model calls no hooks."
                )

    def _release(self) -> None:
        """Leave the model as it was."""
        self._perturb(None)
        self._capture.release()
        if self._statistics is not None and (self._closed or not self._statistics.keeps):
            self._statistics.released()

    def _warn(self, text: str) -> None:
        self._job.warn(text)
