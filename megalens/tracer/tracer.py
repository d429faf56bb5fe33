"""The tracer that a training loop holds."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import torch

from ..protocol import COMMON_SETTINGS, PHASES, named_flags, pipeline_settings
from ..protocol.messages_generated import Config, Control, Phase, Status
from .coordinator import Coordinator
from .errors import TracerError, describe_error, plain_text
from .graph_probes import GraphProbes
from .instrument import SPAN_KINDS, Instrument
from .moments.graph_totals import GraphTotals
from .own_hooks import hooked_optimizer, remove_all, step_hook
from .points import ModelPoints
from .sending.hub_process import HubAddress, HubProcess
from .sending.peers import Rendezvous
from .sending.producer import Producer
from .sending.worker import AUDIT, CHECKPOINT_BYTES, checkpoint_rows
from .steps import StepHandle, Steps, StepScope
from .tensors.config import settings_from
from .tensors.instrument import TensorTracer
from .tensors.plan import TracingPlan

_clock = time.perf_counter_ns


class Tracer:
    """Traces one model. Made by :func:`megalens.trace`.

    Nothing that is called during training raises, waits or synchronises a device: what goes wrong is counted
    and reported by :meth:`status`.

    Parameters
    ----------
    address : HubAddress or None
        The hub; None where rank 0 says where it is, or for a tracer that sends nothing.
    process : HubProcess or None
        The hub's process, where this tracer started it.
    folders : sequence of Path
        Where vector files may lie.
    decode : callable, optional
        Text of one token id.
    controls : sequence of str
        What viewers may do beyond looking.
    hubless : bool
        Whether there is no hub and yet something to do: what is logged goes to files.
    compiled : bool or 'captured'
        Whether code that is compiled from now on gets probes, or measures by itself.
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
        controls: Sequence[Control] = (),
        first_step: int = 1,
        phase: Phase = "train",
        hubless: bool = False,
        compiled: bool | Literal["captured"] = False,
    ) -> None:
        self._name = name
        self._hub_process = process
        self.controls = frozenset(controls)
        """What viewers may do beyond looking."""
        self.folders = tuple(folders)
        """Where vector files may lie."""
        self._handles: list[StepHandle] = []
        self._wrapped = False
        self.points = points
        """The model and its trace points."""
        # Before any instrument looks for them.
        self.graph = (
            GraphProbes(
                points,
                lambda text: self.warn(text),
                perturbs="perturb" in controls,
                totals=GraphTotals() if compiled == "captured" else None,
            )
            if compiled
            else None
        )
        """Probes in compiled code, where there are any."""
        self.tensors = TensorTracer(points, decode, phase, self.graph)
        """The instrument that follows the settings."""
        self._coordinator = Coordinator(
            points,
            plan,
            address,
            process,
            rendezvous,
            self.tensors,
            name=name,
            folders=folders,
            controls=controls,
            first_step=first_step,
            hubless=hubless,
        )
        if self.graph is not None and self.graph.compiles_anew:
            self.warn(
                "Code that torch.compile had compiled before this model was traced is compiled once more, "
                "with probes, when it is called next."
            )
        self._instruments = self._coordinator.instruments
        self._steps = Steps(points, self._coordinator, self.tensors, first_step, phase == "train")
        self._scope = StepScope(self._steps.begin, self._steps.end)
        worker = self._coordinator.worker
        # Numbers of the first replica, from whoever sends.
        self._logs = worker is not None and points.place.leads and points.place.dp == 0
        if worker is not None:
            if any(flag.layers for flag in plan.flags.values()):
                self._steps.forgotten.open()
            atexit.register(self._at_exit)

    def __enter__(self) -> Tracer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._close(finished=kind is None or not issubclass(kind, Exception))

    def __repr__(self) -> str:
        return (
            f"<Tracer {self._name or self.run_id or 'without a hub'}, step {self._steps.number}, flags "
            f"{list(self._coordinator.schedule.accepted.flags)}>"
        )

    @property
    def graph_measures(self) -> bool:
        """Whether compiled code measures by itself (``compiled='captured'``)."""
        return self.graph is not None and self.graph.totals is not None

    # Around the training.

    def step(self) -> StepScope:
        """Return a context manager around one optimizer step; forward passes inside are its micro-batches."""
        if self._wrapped:
            self.warn(
                "An optimizer ends the steps (tracer.wrap), so with tracer.step() does nothing. Use one of "
                "the two."
            )
            return StepScope(lambda: None, lambda: None)
        if self._steps.closed:
            self.warn("The tracer is closed: steps from here on are not traced.")
        return self._scope

    def wrap(self, optimizer: torch.optim.Optimizer) -> StepHandle:
        """End a step at each ``optimizer.step()``, instead of ``with tracer.step()``, until ``remove()``."""
        inner = hooked_optimizer(optimizer)
        if inner is None:
            raise TracerError(
                f"wrap(…) must be given a torch.optim.Optimizer, got a {type(optimizer).__name__}."
            )
        if self._wrapped:
            raise TracerError(
                "An optimizer ends the steps already. Call remove() of what the first wrap(…) gave."
            )

        steps = self._steps

        def stepped(*_: Any) -> None:
            if steps.depth == 1 and not steps.closed:
                steps.end()
                steps.begin()

        hook = inner.register_step_post_hook(step_hook(stepped))

        def undo() -> None:
            hook.remove()
            self._wrapped = False
            if steps.depth:
                steps.abandon()

        handle = StepHandle(undo)
        self._handles.append(handle)
        steps.begin()
        self._wrapped = True
        return handle

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Mark forward passes inside as ``'eval'`` or ``'generate'``; they carry the step that began last."""
        if name not in PHASES:
            raise TracerError(f"A phase must be one of {', '.join(PHASES)}, got {name!r:.50}.")
        inside = self._steps.pause(name)
        try:
            yield
        finally:
            self._steps.resume(inside)

    @contextlib.contextmanager
    def span(self, name: str, kind: str = "user") -> Iterator[None]:
        """Time what is inside as a span of the timeline: ``with tracer.span("tokenize"):``. Without a
        timeline it does nothing.

        Parameters
        ----------
        name : str
            What it is; more than 200 characters are cut.
        kind : str
            ``user``, or one of the timeline's own: ``data`` for a batch that no ``DataLoader`` gave,
            ``checkpoint``, ``optimizer``, ``forward``, ``backward`` or ``wgrad``.
        """
        if kind not in SPAN_KINDS:
            raise TracerError(f"kind=… must be one of {', '.join(SPAN_KINDS)}, got {kind!r:.50}.")
        self._instruments.notify("span_begins", plain_text(str(name)[:200]), kind)
        try:
            yield
        finally:
            self._instruments.notify("span_ends", last_first=True)

    def log(self, *several: Any, unit: str = "", **values: Any) -> None:
        """Report numbers of the step that began last: ``tracer.log(loss=loss, unit="nats/token")``,
        ``tracer.log({"eval/loss": loss})``.

        Parameters
        ----------
        *several : mapping
            Numbers by names that are no words of Python. Anything else is left out with a warning.
        unit : str
            Unit of all of them.
        **values : float or torch.Tensor
            Numbers or tensors of one element. A tensor is copied now and read later, in another thread. Of
            data-parallel replicas those of the first are recorded. Of the losses of all the monitor's rules
            take note, where they are logged inside of the step.
        """
        if self._steps.closed or self._coordinator.worker is None:
            return
        started = _clock()
        for each in several:
            if isinstance(each, Mapping):
                values = {**{str(name): value for name, value in each.items()}, **values}
            else:
                self.warn("What was logged without a name is left out. Write tracer.log(loss=loss).")
        self._instruments.notify("logged", self._steps.number, values)
        if self._logs:
            for name, value in values.items():
                self._steps.scalars.add(self._steps.number, name, value, unit)
        self._steps.spent_ns += _clock() - started

    def checkpoint(self, path: str | os.PathLike[str] | None = None, step: int | None = None) -> None:
        """Mark that the training was saved: ``tracer.checkpoint("runs/step-500.pt")``. Views show it under
        their axes of steps, live and recorded.

        Never raises and never waits. Of a job of several processes only rank 0 counts.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Where it was saved, or what it is called. Only the last part of a path is recorded, at most 80
            characters of it.
        step : int, optional
            The step after which it was saved; the one that began last when absent.
        """
        worker = self._coordinator.worker
        if not isinstance(worker, Producer) or self.points.place.rank != 0 or self._steps.closed:
            return
        try:
            at = self._steps.number if step is None else int(step)
            if not 0 <= at <= self._steps.number:
                raise ValueError(f"step must be one that has begun, 0 to {self._steps.number}, got {at}")
            rows = checkpoint_rows(path, at)
        except Exception as error:
            self.warn(f"A checkpoint could not be marked: {describe_error(error)}")
            return
        worker.task(lambda: worker.send(AUDIT, rows, at), CHECKPOINT_BYTES)

    def samples(self, ids: Any) -> None:
        """Report the ids of the training samples of the step that began last: ``tracer.samples([640, 641])``.

        Alarms of the step name them; more than a thousand are cut. Never raises and never waits. Only rank
        0's count. A tensor must be on the CPU.
        """
        if self.points.place.rank == 0 and not self._steps.closed:
            self._instruments.notify("samples_are", self._steps.number, ids)

    # What the schedule of a pipeline says.

    @property
    def follows_passes(self) -> bool:
        """Whether any instrument follows passes; otherwise nothing needs to be reported of them."""
        return self._steps.follows_passes

    def operation_begins(self, kind: str, chunk: int, micro_batch: int) -> None:
        """Note that a pipeline operation (``forward``, ``backward``, ``wgrad``) of a model chunk begins."""
        self._instruments.notify("operation_begins", kind, chunk, micro_batch)

    def operation_ends(self) -> None:
        self._instruments.notify("operation_ends")

    def message(
        self,
        kind: str,
        began: int,
        ended: int,
        *,
        blocked: int,
        nbytes: int,
        peer: int,
        sequence: int,
        chunk: int,
        micro_batch: int,
    ) -> None:
        """Note that a message of a pipeline is over; see :meth:`Instrument.message`."""
        self._instruments.notify(
            "message", kind, began, ended, blocked, nbytes, peer, sequence, chunk, micro_batch
        )

    # Instruments.

    def attach(self, instrument: Instrument) -> None:
        """Call an instrument at every step from now on; between two steps, or before the first.

        Raises ``TracerError`` when there is one of its name, or with the instrument's own reason.
        """
        if not isinstance(instrument, Instrument):
            raise TracerError(f"attach(…) takes a megalens.tracer.Instrument, got {instrument!r:.100}.")
        self._coordinator.attach(instrument)
        if instrument.watches and not self._steps.passes.begun:
            self._steps.forgotten.open()
        self._steps.follow_passes()

    def detach(self, instrument: Instrument) -> None:
        """Call an instrument no more. Safe twice."""
        self._coordinator.detach(instrument)
        self._steps.follow_passes()

    def instrument(self, name: str) -> Instrument | None:
        return self._instruments.named(name)

    def warn(self, text: str) -> None:
        """Say a sentence to whoever trains and to viewers, once. Never raises and never waits."""
        self._coordinator.warn(text)

    # Settings.

    @property
    def run_id(self) -> str | None:
        """Id of the run as its hub gave it; None without a hub or before the first hello."""
        return None if self._coordinator.worker is None else self._coordinator.worker.run_id

    @property
    def hub_pid(self) -> int | None:
        """Process id of the hub, where this tracer started it."""
        return None if (hub := self._coordinator.hub) is None else hub.pid

    @property
    def folder(self) -> Path | None:
        """The run folder, for ``megalens.open``; None without a recording or where another process has it."""
        folder = None if (hub := self._coordinator.hub) is None else hub.folder
        return None if folder is None else Path(folder)

    @property
    def config(self) -> Config:
        """The settings that were accepted last, in force from the next step at the latest."""
        return self._coordinator.schedule.accepted.config

    def configure(
        self,
        patch: Mapping[str, Any] | Iterable[str] | None = None,
        /,
        *,
        timeline: str | Mapping[str, Any] | None = None,
        pipeline: Any = None,
        **flags: Any,
    ) -> int:
        """Change what is traced, from the next step on: ``tracer.configure(HiddenStates=True, every=10)``.

        In a job of several processes rank 0 asks all of them to change at one step; what is called on the
        others is checked and left to rank 0.

        Parameters
        ----------
        patch : mapping, iterable of str, optional
            By flag name a compressor, True (on, as it is or with what suits it), None or False (off), or a
            ``FlagSetting``; or names, which are switched on. Other flags stay.
        timeline : str or mapping, optional
            How finely steps are timed, as in :func:`megalens.trace`.
        pipeline : str, mapping or plan, optional
            The order of a pipeline's operations, of a ``megalens.pipeline.DynamicSchedule`` with this tracer.
        **flags
            The same by keywords, and ``layers``, ``every``, ``samples``, ``phases``, ``passes``, ``replicas``
            of the flags that are named and do not say their own.

        Returns
        -------
        int
            The first step to which it can apply.

        Raises
        ------
        ProtocolError
            With the field at fault; then nothing has changed.
        TracerError
            When settings come without a flag, or the tracer is closed.
        """
        if self._steps.closed:
            raise TracerError("The tracer is closed, so nothing of it can be changed.")
        common = {name: flags.pop(name) for name in COMMON_SETTINGS if name in flags}
        asked = {**named_flags({} if patch is None else patch, "What to trace"), **flags}
        if common and not asked:
            raise TracerError(
                f"{', '.join(common)} are settings of flags, and none was named: "
                "tracer.configure(HiddenStates=True, …)."
            )
        now = self._coordinator.schedule.accepted.config["flags"]
        settings = settings_from(asked, common, self.points.flags, now)
        if timeline is not None:
            watching = self.instrument("timeline")
            # Where there is none the change is refused as that of any other instrument.
            settings["instruments"] = {
                "timeline": {} if watching is None else watching.settings_from(timeline)
            }
        if pipeline is not None:
            settings["instruments"] = {
                **settings.get("instruments", {}),
                "pipeline": pipeline_settings(pipeline),
            }
        return self._coordinator.change(settings)

    def connected(self, timeout: float = 0.0) -> bool:
        """Return whether a hub has this run, waiting up to ``timeout`` seconds for it."""
        worker = self._coordinator.worker
        return worker is not None and worker.connected.wait(timeout)

    def go_on(self) -> None:
        """End a pause that viewers asked for: for a script that is to exit. Safe in a signal handler."""
        self._coordinator.schedule.release()

    def status(self) -> Status:
        """Return the ``status`` message that viewers get, without what only the hub knows."""
        return self._coordinator.status()

    def close(self) -> None:
        """Send what waits, report the training as finished, and take every hook off. Safe twice."""
        self._close(finished=True)

    def _at_exit(self) -> None:
        # The interpreter leaves here what it has printed a traceback of.
        failure = getattr(sys, "last_type", None)
        self._close(finished=failure is None or not issubclass(failure, Exception))

    def _close(self, *, finished: bool) -> None:
        if self._steps.closed:
            return
        remove_all(self._handles)
        self._steps.close()
        if self.graph is not None:
            self.graph.close()
        self._coordinator.close(finished)
        if finished and self._hub_process is not None:
            self._hub_process.wait_for_upload()
        atexit.unregister(self._at_exit)

    def take_changes(self) -> None:
        """Apply what viewers asked for now, between two steps, as a step in which nothing runs."""
        self._steps.take_changes()
