"""The seam between the tracer and what watches its steps.

::

    training loop                 training thread            producer thread            other ranks
    with tracer.step(): ─▶ Tracer ─ step_begins, … ─▶ Instrument ─ later(task) ─▶ task ─ send(…) ─▶ hub
                                                          │
                                                          └─ tell(rank, …) ─▶ channel ─▶ received() there

An instrument's methods are called at a step's parts, in the training thread; it hands rows of its stream to
``send``. What sends, joins ranks, keeps to a budget or counts overhead does not know what is watched.

The tensor tracer (``tensors/``) and the statistics logger (``moments/``) are two; others are attached
with ``megalens.trace(model, instruments=[…])``, by object or by the name of an entry point of the group
``megalens.instruments``.

Rules of the step path: an instrument never waits for a socket, a disk or another thread, synchronises no
device, keeps nothing that grows, and leaves no hook on the model while it watches nothing. What it raises is
caught, reported once and counted; the step goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from torch import nn

from ..protocol import FrameTemplate
from ..protocol.messages_generated import Announce, Cancel, Generate, Generating, Status
from .coordinates import RankCoordinates
from .errors import describe_error
from .health import ProducerHealth
from .sending.peers import Peers
from .sending.producer import Producer
from .sending.worker import IGatherer, Rows, Worker

SPAN_KINDS = ("user", "data", "checkpoint", "optimizer", "forward", "backward", "wgrad")

_OTHER_ROW_BYTES = 256
"""Of rows whose size is not known yet."""
"""Kinds of the spans that a script says itself: see :meth:`Instrument.span_begins`."""


class Instrument:
    """What watches the steps of one training. Every method may be left as it is; all but the last six are
    called in the training thread.

    Attributes
    ----------
    name : str
        Namespace of its settings, its status and its messages.
    title : str
        What a form of its settings is called.
    passes : bool
        Whether it follows forward and backward passes. Where no instrument does, there is no hook for them.
    streams : mapping
        By name, the streams that it sends and ``protocol/streams.json`` does not hold: title, fields and
        policy, in the form of that file.
    """

    name = ""
    title = ""
    passes = False
    streams: Mapping[str, Any] = {}
    step_ns = 0
    """Nanoseconds that hooks of its own have cost the training thread since :meth:`take_ns`; what the tracer
    calls is measured by the tracer.
    """

    def bind(self, tracer: Any) -> None:
        """Get the :class:`~megalens.tracer.Tracer` that is about to attach this instrument.

        The settings of all ranks are changed there, and compiled code gets its probes now.
        """

    def attach(self, host: Host) -> None:
        """Begin: the tracer has taken this instrument. What it raises is shown to the user."""

    def between_steps(self) -> None:
        """Do slow work that was asked for, before a step begins: the training waits for it."""

    def step_begins(self, step: int, untraced: bool) -> None:
        """Begin a step. An untraced one is for comparing the cost, or all ranks are agreeing on a change."""

    def forward_begins(self, chunk: int) -> None:
        """Note that a forward pass of a model chunk begins.

        Passes that are no training are not reported; where training is done in evaluation mode, neither is
        the first pass.
        """

    def forward_ends(self, output: Any) -> None: ...

    def backward_begins(self, chunk: int) -> None: ...

    def backward_ends(self) -> None: ...

    def operation_begins(self, kind: str, chunk: int, micro_batch: int) -> None:
        """Note that a pipeline's schedule begins an operation: ``forward``, ``backward`` or ``wgrad``.

        The passes in it are reported as well, without their micro-batch.
        """

    def operation_ends(self) -> None: ...

    def message(
        self,
        kind: str,
        began: int,
        ended: int,
        blocked: int,
        nbytes: int,
        peer: int,
        sequence: int,
        chunk: int,
        micro_batch: int,
    ) -> None:
        """Note a message of a pipeline's schedule that is over: ``send`` or ``receive``.

        Times are ns of ``perf_counter_ns``; ``peer`` is the other's global rank, ``sequence`` counts messages
        that way, and chunk and micro-batch are those of the operation it belongs to.
        """

    def step_ends(self) -> None:
        """End the step and hand over what it gave."""

    def step_abandoned(self) -> None:
        """Forget the step: it is incomplete."""

    def samples_are(self, step: int, ids: Any) -> None:
        """Note the ids of the training samples of a step."""

    def logged(self, step: int, values: Mapping[str, Any]) -> None:
        """Note numbers that the script logs, on every rank; only the first replica's are recorded."""

    def span_begins(self, name: str, kind: str) -> None:
        """Note that a span of the script's own begins, inside of a step or between two."""

    def span_ends(self) -> None:
        """Note that the span that began last is over."""

    def pause(self, phase: str) -> None:
        """Note that evaluation or generation begins, inside of a step or between two."""

    def resume(self, training: bool) -> None:
        """Note the end of a pause, inside of a step or of another phase where ``training`` is true."""

    def release(self, closing: bool) -> None:
        """Take every hook off. Unless all is closing, the hub is gone for good. Safe twice."""

    def take_ns(self) -> int:
        """Return :attr:`step_ns` and count from 0 again."""
        spent, self.step_ns = self.step_ns, 0
        return spent

    @property
    def watches(self) -> bool:
        """Whether it does anything in a step as it is set."""
        return bool(self.settings())

    @property
    def uses_points(self) -> bool:
        """Whether what it does as it is set hangs on where the model's tensors can be seen."""
        return False

    def places_changed(self, places: Collection[tuple[str, int]]) -> None:
        """Note that the first forward pass, which has just ended, showed flags of layers elsewhere than
        supposed: what was seen of them in it is of another tensor. Before the next step a plan for the new
        places follows.
        """

    def settings(self) -> Mapping[str, Any]:
        """Return its settings as JSON, for viewers."""
        return {}

    def settings_from(self, asked: Any) -> Mapping[str, Any]:
        """Return complete settings for a script's short form, as of ``tracer.configure(timeline="phases")``.

        Raises ``TracerError``.
        """
        return dict(asked)

    def schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema of its settings; empty where they cannot change. Any thread."""
        return {}

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return settings with every default written out. Any thread; nothing changes.

        Raises ``ProtocolError`` (``bad-parameter``) with the field at fault: ``instruments.<name>.…``.
        """
        return settings

    def apply(self, step: int, settings: Mapping[str, Any]) -> None:
        """Follow settings that :meth:`check` gave from ``step`` on, which begins now; on all ranks alike."""

    def describe(self, announce: Announce) -> None:
        """Add to the ``announce`` message. Any thread."""
        if self.streams:
            announce.setdefault("streams", {}).update(self.streams)

    def report(self, status: Status) -> None:
        """Add to the ``status`` message; by default the settings, under the instrument's name. Any thread."""
        if settings := self.settings():
            status.setdefault("instruments", {})[self.name] = dict(settings)

    def asked(self, message: Generate | Cancel) -> Generating | None:
        """Answer a viewer's request in the producer thread, or None where it is for others.

        Raises ``ProtocolError``.
        """
        return None

    def change_waits(self) -> None:
        """Note that a change was accepted, in force from the next step on. Any thread."""

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take a message of the same instrument on another rank; in the thread of the connections."""

    def undelivered(self) -> None:
        """Describe everything anew: a message that later ones refer to may not have arrived."""

    def superseded(self) -> None:
        """Give way to another of the same name, which gets all messages from now on."""


class Host:
    """Everything that one instrument may ask of the tracer, from any thread. Nothing waits.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass.
    worker : Worker or None
        The producer thread, where there is one.
    peers : callable
        Gives the connections to the other processes; None where there are none.
    announce : callable
        Sends viewers a new ``announce`` message.
    begun : callable
        Gives the step that began last.
    """

    def __init__(
        self,
        name: str,
        place: RankCoordinates,
        roots: Sequence[nn.Module],
        worker: Worker | None,
        peers: Callable[[], Peers | None],
        announce: Callable[[], None],
        warn: Callable[[str], None],
        begun: Callable[[], int],
    ) -> None:
        self.place, self.roots = place, roots
        self.announce, self.warn = announce, warn
        self._begun = begun
        self._name = name
        self._worker, self._peers = worker, peers
        # Where nobody sends, what is counted is not reported.
        self._health = ProducerHealth() if worker is None else worker.health

    @property
    def step(self) -> int:
        """The step that began last."""
        return self._begun()

    @property
    def sends(self) -> bool:
        """Whether anybody takes what is handed over."""
        return self._worker is not None and self._worker.alive and not self._worker.untraced

    def send(self, stream: str, rows: Rows, step: int | None = None) -> int:
        """Send rows of a stream, of ``step`` (the one that began last when absent).

        In a task given to :meth:`later` they go at once, and the size of the frame is returned, 0 where no
        hub took it. From any other thread they wait their turn, and 0 is returned. Rows that are too many to
        wait, or that no hub takes, are given up and counted.
        """
        worker = self._worker
        if not isinstance(worker, Producer):
            return 0
        at = self._begun() if step is None else step
        if worker.here:
            return worker.send(stream, rows, at)
        count, nbytes = _size(rows)
        if not worker.task(lambda: self._send(worker, stream, rows, at), nbytes):
            self.lose(count, "waiting", f"Rows of {stream}", at)
        return 0

    def _send(self, worker: Producer, stream: str, rows: Rows, step: int) -> None:
        try:
            worker.send(stream, rows, step)
        except Exception as error:  # Rows that do not fit their stream end nothing but themselves.
            self.warn(f"Rows of {stream} of step {step} could not be sent: {describe_error(error)}")

    def later(self, task: Callable[[], Any], nbytes: int = 0, *, patient: bool = False) -> bool:
        """Run a task in the producer thread, in order; return False where too many bytes wait there already.

        A ``patient`` task may wait for up to a second while nobody looks, so that several steps are sent
        together.
        """
        return self._worker is not None and self._worker.task(task, nbytes, patient=patient)

    def tell(self, rank: int, meta: dict[str, Any], arrays: Sequence[np.ndarray]) -> None:
        """Send a message to the same instrument on rank 0 or on the first rank of the tensor-parallel group.

        There is no connection to others.
        """
        peers = self._peers()
        if peers is not None:
            peers.send(rank, self._name, meta, arrays)

    def send_ready(self) -> None:
        """Send everything handed over before, of every instrument, ahead of what is sent next."""
        if isinstance(self._worker, Producer):
            self._worker.task(self._worker.send_ready)

    def gather(self, gatherer: IGatherer) -> None:
        """Let the producer thread poll what waits for other ranks, until it is done."""
        if isinstance(self._worker, Producer):
            self._worker.gather(gatherer)

    def numbers(self, step: int) -> Mapping[str, float] | None:
        """Return the numbers logged up to ``step`` since the last call; None before that step has ended.

        For one instrument, in a task.
        """
        return self._worker.numbers(step) if isinstance(self._worker, Producer) else {}

    def caught_up(self) -> bool:
        """Return whether the producer thread has taken all that was handed over: before, nobody is late."""
        return self._worker is None or self._worker.caught_up()

    def name_of(self, rank: int) -> str:
        peers = self._peers()
        return f"rank {rank}" if peers is None else peers.members.name(rank)

    def gone(self, rank: int) -> bool:
        peers = self._peers()
        return peers is None or peers.members.gone(rank)

    @property
    def queue_bytes(self) -> int:
        """How many bytes may wait to be sent."""
        return 0 if self._worker is None else self._worker.queue_bytes

    def room(self, *, large: bool = False) -> int:
        """See :meth:`Worker.room`."""
        return 0 if self._worker is None else self._worker.room(large=large)

    def lose(
        self,
        rows: int,
        why: str,
        what: str = "",
        step: int | None = None,
        layers: Collection[int] = (),
        size: str = "",
    ) -> None:
        """Count rows that are given up, and name the first of their kind; see :meth:`Losses.add`.

        ``what`` is the instrument, and ``step`` the one that began last, where absent.
        """
        self._health.lose(
            rows, why, what or f"Rows of {self._name}", self._begun() if step is None else step, layers, size
        )


def _size(rows: Rows) -> tuple[int, int]:
    """Return the number of rows and roughly their bytes."""
    if isinstance(rows, FrameTemplate):
        return rows.rows, _OTHER_ROW_BYTES * rows.rows
    if isinstance(rows, pa.RecordBatch):
        return rows.num_rows, rows.nbytes
    count = len(next(iter(rows.values()), ()))
    return count, _OTHER_ROW_BYTES * count
