"""The producer thread of a process that does not send for its tensor-parallel group: its pieces go to the one that does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...sending.worker import Task, Worker
from ..batch import Batch, Row, RowMeta
from ..staging import StagePool
from .joiner import pack_pieces

__all__ = ["PieceProducer"]


class PieceProducer(Worker):
    """Compresses this rank's pieces and sends them to the leader of its group.

    Parameters
    ----------
    stages : StagePool
        Where the memory of a batch goes back to.
    send : callable
        Takes a description and arrays; never waits.
    """

    def __init__(
        self, stages: StagePool, send: Callable[[dict[str, Any], Sequence[np.ndarray]], None]
    ) -> None:
        super().__init__(stages)
        self._send = send
        self._tables: dict[tuple[RowMeta, ...], int] = {}
        self.bytes_sent = 0
        self._thread.start()

    def describe_anew(self) -> None:
        """Describe everything anew: something that was described did not reach whoever takes the pieces."""
        self._tables.clear()

    def _loop(self) -> None:
        while (item := self._queue.get()) is not None:
            # Nobody but rank 0 answers for the settings.
            if isinstance(item, Batch):
                self._batch(item)
            elif isinstance(item, Task):
                item.run()

    def _batch(self, batch: Batch) -> None:
        rows, stage = self._finish(batch)
        pieces = [row for row in rows if row.meta.join is not None]
        if pieces:
            self._count_nonfinite(batch.step, pieces)
            meta, arrays = pack_pieces(batch, pieces, self._tables)
            self._send(meta, arrays)
            self.bytes_sent += sum(array.nbytes for array in arrays)
        self._tiles.give(stage)
        if batch.wall_ns:
            self._step_ended(batch.wall_ns)
        self._taken_bytes += batch.nbytes

    def _count_nonfinite(self, step: int, rows: Sequence[Row]) -> None:
        counts = np.array([[int(count) for count in row.nonfinite] for row in rows], np.int64)
        self.health.count_nonfinite(step, rows, counts)
