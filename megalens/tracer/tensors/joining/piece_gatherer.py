"""Batches of the producer thread that wait for the pieces of the other tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..batch import Batch, StepRows
from .joiner import Joiner

if TYPE_CHECKING:
    from ...host import Host

__all__ = ["PieceGatherer"]


class PieceGatherer:
    """Holds batches back until they are whole, and sends them in the order of the steps.

    Parameters
    ----------
    joiner : Joiner
        Where they wait.
    send : callable
        Takes the rows of a step, and gives their memory back.
    host : Host
        Takes sentences for the user, and counts what did not come.
    """

    def __init__(
        self,
        joiner: Joiner,
        send: Callable[[StepRows], None],
        host: Host,
    ) -> None:
        self._joiner = joiner
        self._send = send
        self._host = host
        self._lost = 0

    @property
    def waiting(self) -> bool:
        """Whether a batch waits for pieces."""
        return self._joiner.waiting

    @property
    def done(self) -> bool:
        """Never: pieces come as long as there are steps."""
        return False

    @property
    def bytes_received(self) -> int:
        """Bytes of pieces that came."""
        return self._joiner.bytes_received

    def put(self, batch: Batch) -> None:
        """Take a batch of this process's own, complete on the host."""
        self._joiner.put(batch)

    def take(self, rank: int, meta: Mapping[str, Any], payload: memoryview) -> None:
        """Take what another rank sent."""
        try:
            self._joiner.take(rank, meta, payload)
        except (KeyError, ValueError, TypeError) as error:
            self._host.warn(f"Rank {rank} sent something that cannot be read: {str(error)[:200]}")

    def send_ready(self, *, everything: bool = False) -> None:
        """Send the batches that are whole; with ``everything`` wait for no more pieces."""
        # What waits in the queue may be the very pieces: nobody is late while the thread is behind.
        for step in self._joiner.ready(everything=everything, caught_up=self._host.caught_up()):
            self._send(step)
        lost, self._lost = self._lost, self._joiner.lost_rows
        if lost != self._lost:
            self._host.lose(self._lost - lost, "unjoined")
