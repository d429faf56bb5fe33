"""The producer thread's half of the tensor tracer: batches of the step path become rows of the stream, or pieces for the rank that joins them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...protocol.messages_generated import NonFinite, NonFiniteFirst
from .batch import (
    NON_FINITE,
    RAW_BYTES,
    Batch,
    FiredProbes,
    Row,
    RowMeta,
    count_rows,
    finish_rows,
    split_rows,
    tensors_table,
)
from .held import HeldTensor, held_columns
from .joining.joiner import Joiner, pack_pieces
from .joining.piece_gatherer import PieceGatherer
from .staging import Stage, StagePool
from .token_texts import TokenTexts

if TYPE_CHECKING:
    from ..host import Host

__all__ = ["LeaderSender", "MemberSender", "TensorSender"]

STREAM = "tensors"
_FRAME_BYTES = 32 << 20
_ROW_BYTES = 60 << 20
_SCRATCH = RAW_BYTES // 4


class TensorSender:
    """What the senders of all ranks share.

    Parameters
    ----------
    host : Host
        Where everything goes.
    stages : StagePool
        Where the memory of a batch goes back to.

    Attributes
    ----------
    probes : FiredProbes or None
        Those of the last step that said so.
    """

    def __init__(self, host: Host, stages: StagePool) -> None:
        self._host = host
        self._stages = stages
        self._tiles = StagePool()
        self._scratch = Stage(_SCRATCH)
        self.probes: FiredProbes | None = None
        self._nonfinite = 0
        self._first_nonfinite: NonFiniteFirst | None = None

    def put(self, batch: Batch) -> None:
        """Hand over a batch, in the training thread. Never waits: when too much is waiting, its rows are given up and counted."""
        if not self._host.later(lambda: self._take(batch), batch.nbytes):
            self._host.lose(count_rows(batch.rows), "waiting")
            batch.rows, batch.nbytes = [], 0
            # The probes that fired are told all the same.
            self._host.later(lambda: self._take(batch))

    def undelivered(self) -> None:
        """Describe everything anew."""

    def put_held(self, held: Sequence[HeldTensor], nbytes: int) -> None:
        """Hand over small tensors of several passes, in the training thread. Never waits; what is too much is given up and counted."""
        if not self._host.later(lambda: self._take_held(held), nbytes):
            self._host.lose(sum(len(each.probe.source.parts) for each in held), "waiting")

    def nonfinite(self) -> NonFinite:
        """Return the ``NonFinite`` object of ``status``."""
        first = self._first_nonfinite
        return {"count": self._nonfinite} if first is None else {"count": self._nonfinite, "first": first}

    def _take(self, batch: Batch) -> None:
        raise NotImplementedError

    def _take_held(self, held: Sequence[HeldTensor]) -> None:
        columns = held_columns(held, self._host.place.rank)
        counts = columns["nan_count"] + columns["inf_count"]
        if total := int(counts.sum()):
            row = int(counts.nonzero()[0][0])
            self._note_nonfinite(
                total, int(columns["step"][row]), int(columns["layer"][row]), columns["flag"][row].as_py()
            )
        self._host.send(STREAM, columns, max(each.step for each in held))

    def _finish(self, batch: Batch) -> tuple[list[Row], Stage]:
        """Wait for a batch's copies and make its tiles; the rows lie in the stage."""
        if batch.ready is not None:
            batch.ready.synchronize()
        if batch.probes is not None:
            self.probes = batch.probes
            if batch.probes[0] == 0 and batch.probes[1]:
                self._host.warn(
                    "No probe fired in a step that was to be traced: the traced model was not called in it, or it was compiled before it was traced. "
                    "Call megalens.trace(model, compiled=True) before the first step, or torch.compiler.reset() after it."
                )
        stage = self._tiles.take()
        rows = finish_rows(batch.rows, stage, self._scratch)
        if batch.stage is not None:
            self._stages.give(batch.stage)
        return rows, stage

    def _count_nonfinite(self, step: int, rows: Sequence[Row], counts: np.ndarray) -> None:
        """Add the non-finite values of ``rows``, of which ``counts`` is ``[rows, 2]``."""
        if total := int(counts.sum()):
            meta = rows[int(counts.sum(axis=1).nonzero()[0][0])].meta
            self._note_nonfinite(total, step, meta.layer, meta.flag)

    def _note_nonfinite(self, count: int, step: int, layer: int, flag: str) -> None:
        """Add to the count, and keep where the first ones were."""
        if self._first_nonfinite is None:
            self._first_nonfinite = {"step": step, "layer": layer, "flag": flag}
        self._nonfinite += count


class LeaderSender(TensorSender):
    """Of a process that sends for its tensor-parallel group.

    Parameters
    ----------
    host, stages
        As for :class:`TensorSender`.
    decode : callable, optional
        Text of one token id.
    """

    def __init__(self, host: Host, stages: StagePool, decode: Callable[[int], str] | None) -> None:
        super().__init__(host, stages)
        self._texts = None if decode is None else TokenTexts(decode, host.warn)
        self._pieces: PieceGatherer | None = None
        ranks = host.place.tp_ranks
        if len(ranks) > 1:
            joiner = Joiner(ranks, host.name_of, host.warn)
            self._pieces = PieceGatherer(joiner, self._send, self._tiles, host)
            host.gather(self._pieces)

    @property
    def piece_bytes(self) -> int:
        """Bytes of pieces that other ranks sent."""
        return 0 if self._pieces is None else self._pieces.bytes_received

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take what another rank of the group sent."""
        pieces = self._pieces
        if pieces is not None:
            self._host.later(lambda: pieces.take(rank, meta, payload))

    def _take(self, batch: Batch) -> None:
        rows, stage = self._finish(batch)
        if self._pieces is None:
            self._send(batch.step, rows, stage)
        else:
            self._pieces.put(batch, rows, stage)

    def _send(self, step: int, rows: Sequence[Row], stage: Stage | None) -> None:
        for part in split_rows(rows, _FRAME_BYTES):
            self._send_rows(step, part, stage)
        if stage is not None:
            self._tiles.give(stage)

    def _send_rows(self, step: int, rows: Sequence[Row], stage: Stage | None) -> None:
        if any(row.values.nbytes > _ROW_BYTES for row in rows):
            self._host.lose(len(rows), "unsent")
            self._host.warn(
                f"{rows[0].meta.flag} is larger than one message may be ({_ROW_BYTES >> 20} MiB). Compress it more."
            )
            return
        table, counts = tensors_table(step, self._host.place.rank, rows, self._texts, stage)
        self._count_nonfinite(step, rows, counts)
        self._host.send(STREAM, table, step)


class MemberSender(TensorSender):
    """Of a process that does not: compresses its pieces and sends them to the leader of its group."""

    def __init__(self, host: Host, stages: StagePool) -> None:
        super().__init__(host, stages)
        self._tables: dict[tuple[RowMeta, ...], int] = {}

    def undelivered(self) -> None:
        """Describe everything anew: something that was described did not reach whoever takes the pieces."""
        self._tables.clear()

    def _take(self, batch: Batch) -> None:
        rows, stage = self._finish(batch)
        pieces = [row for row in rows if row.meta.join is not None]
        if pieces:
            meta, arrays = pack_pieces(batch, pieces, self._tables)
            self._count_nonfinite(batch.step, pieces, arrays[0][:, NON_FINITE])
            self._host.tell(self._host.place.tp_ranks[0], meta, arrays)
        self._tiles.give(stage)
