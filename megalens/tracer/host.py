"""What an instrument may ask of the tracer, made for each by the coordinator of its process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from torch import nn

from ..protocol import FrameTemplate
from .errors import said
from .health import ProducerHealth
from .place import Place
from .sending.peers import Peers
from .sending.producer import Producer
from .sending.worker import IGatherer, Rows, Worker

__all__ = ["Host"]

_ROW_BYTES = 256
"""Of rows whose size is not known yet."""


class Host:
    """Everything that one instrument may ask of the tracer. Each member may be called from any thread, and none waits.

    Parameters
    ----------
    name : str
        The instrument's.
    place : Place
        Where this process stands.
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass.
    worker : Worker or None
        The producer thread, where there is one.
    peers : callable
        Gives the connections to the other processes; None where there are none.
    announce : callable
        Tells viewers anew what there is.
    warn : callable
        Takes a sentence for the user.
    begun : callable
        Gives the step that began last.
    """

    def __init__(
        self,
        name: str,
        place: Place,
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
        # Where nobody sends, what is counted is told to nobody.
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

        In a task given to :meth:`later` they go at once, and the size of the frame is returned, 0 where no hub took it. From any other thread they wait
        their turn, and 0 is returned. Rows that are too many to wait, or that no hub takes, are given up and counted.
        """
        worker = self._worker
        if not isinstance(worker, Producer):
            return 0
        at = self._begun() if step is None else step
        if worker.here:
            return worker.send(stream, rows, at)
        count, nbytes = _size(rows)
        if not worker.task(lambda: self._send(worker, stream, rows, at), nbytes):
            self.lose(count, "waiting")
        return 0

    def _send(self, worker: Producer, stream: str, rows: Rows, step: int) -> None:
        try:
            worker.send(stream, rows, step)
        except Exception as error:  # Rows that do not fit their stream end nothing but themselves.
            self.warn(f"Rows of {stream} of step {step} could not be sent: {said(error)}")

    def later(self, task: Callable[[], Any], nbytes: int = 0, *, patient: bool = False) -> bool:
        """Have something done in the producer thread, in order; False where too many bytes wait there already, and it will not be.

        What is ``patient`` may wait for up to a second while nobody looks, so that several steps are sent together.
        """
        return self._worker is not None and self._worker.task(task, nbytes, patient=patient)

    def tell(self, rank: int, meta: dict[str, Any], arrays: Sequence[np.ndarray]) -> None:
        """Hand a message to the same instrument on rank 0, or on the first of the tensor-parallel group: there is no way to others."""
        peers = self._peers()
        if peers is not None:
            peers.send(rank, self._name, meta, arrays)

    def send_ready(self) -> None:
        """Have everything that was handed over before sent, of every instrument, before what is sent next: several steps that were to go together go now."""
        if isinstance(self._worker, Producer):
            self._worker.task(self._worker.send_ready)

    def gather(self, gatherer: IGatherer) -> None:
        """Have the producer thread look after what waits for other ranks, until it is done."""
        if isinstance(self._worker, Producer):
            self._worker.gather(gatherer)

    def numbers(self, step: int) -> Mapping[str, float] | None:
        """Return the numbers up to ``step`` that the training loop logged since this was last asked, once it has ended; None before. For one instrument, in a task."""
        return self._worker.numbers(step) if isinstance(self._worker, Producer) else {}

    def caught_up(self) -> bool:
        """Return whether the producer thread has taken all that was handed over: before, nobody is late."""
        return self._worker is None or self._worker.caught_up()

    def name_of(self, rank: int) -> str:
        """Return what people are told of a rank."""
        peers = self._peers()
        return f"rank {rank}" if peers is None else peers.members.name(rank)

    def gone(self, rank: int) -> bool:
        """Return whether a rank has left."""
        peers = self._peers()
        return peers is None or peers.members.gone(rank)

    def lose(self, rows: int, why: str) -> None:
        """Count rows that never reach a hub: ``waiting`` (too many did), ``unsent`` or ``unjoined`` (a rank's part did not come)."""
        self._health.lose(rows, why)


def _size(rows: Rows) -> tuple[int, int]:
    """Return how many rows there are, and about how many bytes."""
    if isinstance(rows, FrameTemplate):
        return rows.rows, _ROW_BYTES * rows.rows
    if isinstance(rows, pa.RecordBatch):
        return rows.num_rows, rows.nbytes
    count = len(next(iter(rows.values()), ()))
    return count, _ROW_BYTES * count
