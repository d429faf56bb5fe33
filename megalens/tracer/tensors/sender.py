"""The producer thread's half: batches become rows of the stream, or pieces for the rank that joins them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...protocol.messages_generated import NonFinite, NonFiniteFirst
from .batch import (
    NON_FINITE,
    ROW_BYTES,
    Batch,
    FiredProbes,
    Row,
    RowMeta,
    StepRows,
    by_flag,
    fitting_rows,
    split_rows,
    tensors_table,
    without_values,
)
from .joiner import Joiner, pack_pieces
from .retained import RetainedTensor, SilentProbeWords, retained_columns

if TYPE_CHECKING:
    from ..instrument import Host

STREAM = "tensors"
_FRAME_BYTES = 32 << 20
_MOST_VALUES_BYTES = 59 << 20
_TOGETHER_BYTES = 24 << 20
"""Steps that are sent together are no more than this: what the worker lets wait, and the step that ends the
wait, go in one message.
"""

_KNOWN = 65536


class TokenTexts:
    """Decodes the ids of ``InputTokens``. A tokenizer that fails is asked no more."""

    def __init__(self, decode: Callable[[int], str], warn: Callable[[str], None]) -> None:
        self._decode: Callable[[int], str] | None = functools.lru_cache(_KNOWN)(decode)
        self._warn = warn

    def __call__(self, row: Row) -> list[str]:
        """Return the text of each value of ``row``; nothing where it holds no ids."""
        if row.meta.flag != "InputTokens" or row.meta.part != "ids" or self._decode is None:
            return []
        try:
            return [self._decode(int(number)) for number in row.values.reshape(-1).tolist()]
        except Exception as error:  # The tokenizer is the user's.
            self._warn(
                f"The tokenizer could not decode ids ({type(error).__name__}). Tokens are shown without text."
            )
            self._decode = None
            return []


class TensorSender:
    """What the senders of all ranks share; ``probes`` is the last report of fired probes."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.probes: FiredProbes | None = None
        self._silent = SilentProbeWords()
        self._nonfinite = 0
        self._first_nonfinite: NonFiniteFirst | None = None

    def put(self, batch: Batch) -> None:
        """Hand over a batch, in the training thread. What is too much to wait is given up and named."""
        host = self._host
        if batch.nbytes > host.room(large=True):
            self._shorten(batch)
        if not host.later(lambda: self._take(batch), batch.nbytes, patient=True):
            self._lose(batch.step, batch.rows, "waiting")
            batch.rows, batch.nbytes = [], 0
            # The probes that fired are reported all the same.
            host.later(lambda: self._take(batch), patient=True)

    def _shorten(self, batch: Batch) -> None:
        """Give up what does not fit: values of the largest rows, and rows that lie on several ranks."""
        room = self._host.room(), self._host.room(large=True)
        made, bare = fitting_rows(batch.rows, *room)
        if not bare:
            return
        joined = [row for row in batch.rows if row.meta.join is not None]
        if joined:
            # A rank that sends only some pieces of a batch would be taken for one with another model.
            self._lose(batch.step, joined, "waiting")
            made, bare = fitting_rows([row for row in batch.rows if row.meta.join is None], *room)
        self._lose(batch.step, bare, "values-waiting")
        if batch.stage is not None:
            # Its memory may wait no more than the values that were given up.
            made = [
                row._replace(values=row.values.copy()) if isinstance(row.values, np.ndarray) else row
                for row in made
            ]
            batch.stage.give_back()
        batch.rows, batch.stage = made, None
        batch.nbytes = sum(row.values.nbytes + ROW_BYTES for row in made)

    def _lose(self, step: int, rows: Sequence[Row], why: str) -> None:
        """Count and name rows by flag and layer."""
        for title, of in by_flag(rows).items():
            largest = max(row.values.nbytes for row in of) / 1e6
            bound = _MOST_VALUES_BYTES if why == "values-too-large" else self._host.queue_bytes
            size = f"{largest:.3g} MB a row; {bound / 1e6:.3g} MB at most"
            self._host.lose(len(of), why, title, step, {row.meta.layer for row in of}, size)

    def undelivered(self) -> None:
        """Describe everything anew."""

    def put_retained(self, retained: Sequence[RetainedTensor], nbytes: int) -> None:
        """Hand over small tensors of several passes, in the training thread. Never waits."""
        if not self._host.later(lambda: self._take_retained(retained), nbytes):
            first = retained[0]
            self._host.lose(
                sum(len(each.probe.source.parts) for each in retained),
                "waiting",
                "Tensors of several passes",
                first.step,
                {each.probe.layer for each in retained},
            )

    def nonfinite(self) -> NonFinite:
        first = self._first_nonfinite
        return {"count": self._nonfinite} if first is None else {"count": self._nonfinite, "first": first}

    def _take(self, batch: Batch) -> None:
        raise NotImplementedError

    def _take_retained(self, retained: Sequence[RetainedTensor]) -> None:
        columns = retained_columns(retained, self._host.place.rank)
        self._note_nonfinite(
            columns["nan_count"] + columns["inf_count"],
            lambda row: (int(columns["step"][row]), int(columns["layer"][row]), columns["flag"][row].as_py()),
        )
        self._host.send(STREAM, columns, max(each.step for each in retained))

    def _finish(self, batch: Batch) -> None:
        """Wait for a batch's copies, and note what it reports of its probes."""
        if batch.ready is not None:
            batch.ready.synchronize()
        if batch.probes is not None:
            self.probes = batch.probes
            for text in self._silent.of(batch):
                self._host.warn(text)

    def _note_nonfinite(self, counts: np.ndarray, where: Callable[[int], tuple[int, int, str]]) -> None:
        """Count the non-finite values of rows; ``where`` gives step, layer and flag of a row."""
        total = int(counts.sum())
        if total and self._first_nonfinite is None:
            step, layer, flag = where(int(counts.nonzero()[0][0]))
            self._first_nonfinite = {"step": step, "layer": layer, "flag": flag}
        self._nonfinite += total


class LeaderSender(TensorSender):
    """Of a process that sends for its tensor-parallel group. Steps go in one message while it is small.

    Batches wait here for the pieces of the other ranks, and are sent in the order of the steps.
    """

    done = False

    def __init__(self, host: Host, decode: Callable[[int], str] | None) -> None:
        super().__init__(host)
        self._texts = None if decode is None else TokenTexts(decode, host.warn)
        self._ready: list[StepRows] = []
        self._ready_bytes = 0
        ranks = host.place.tp_ranks
        self._joiner = Joiner(ranks, host.name_of, host.warn) if len(ranks) > 1 else None
        self._unjoined_rows = 0
        host.gather(self)

    @property
    def piece_bytes(self) -> int:
        """Bytes of pieces that other ranks sent."""
        return 0 if self._joiner is None else self._joiner.bytes_received

    @property
    def waiting(self) -> bool:
        return self._joiner is not None and self._joiner.waiting

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take pieces of another rank of the group."""
        self._host.later(lambda: self._take_pieces(rank, meta, payload))

    def send_ready(self, *, everything: bool = False) -> None:
        """Send the batches that are complete; with ``everything`` wait for no more pieces."""
        if self._joiner is not None:
            self._take_joined(self._joiner, everything=everything)
        self._flush()

    def _take_joined(self, joiner: Joiner, *, everything: bool = False) -> None:
        # What waits in the queue may be the very pieces: nobody is late while the thread is behind.
        for step in joiner.ready(everything=everything, caught_up=self._host.caught_up()):
            self._send(step)
        before, self._unjoined_rows = self._unjoined_rows, joiner.lost_rows
        if before != self._unjoined_rows:
            self._host.lose(self._unjoined_rows - before, "told")

    def _take_pieces(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        if self._joiner is None:
            return
        try:
            self._joiner.take(rank, meta, payload)
        except (KeyError, ValueError, TypeError) as error:
            self._host.warn(f"Rank {rank} sent something that cannot be read: {str(error)[:200]}")

    def _take(self, batch: Batch) -> None:
        self._finish(batch)
        if self._joiner is None:
            self._send(StepRows(batch.step, batch.rows, batch.stage))
        else:
            self._joiner.put(batch)

    def _take_retained(self, retained: Sequence[RetainedTensor]) -> None:
        # Of earlier steps.
        self._flush()
        super()._take_retained(retained)

    def _send(self, step: StepRows) -> None:
        sizes = [row.values.nbytes for row in step.rows]
        if max(sizes, default=0) > _MOST_VALUES_BYTES:
            step = step._replace(rows=self._sendable(step))
            sizes = [row.values.nbytes for row in step.rows]
        nbytes = sum(sizes)
        if self._ready_bytes + nbytes > _TOGETHER_BYTES:
            self._flush()
        self._ready.append(step)
        self._ready_bytes += nbytes

    def _flush(self) -> None:
        # Together, since each message costs the hub as much again as a small step.
        ready, self._ready, self._ready_bytes = self._ready, [], 0
        if ready:
            self._send_steps(ready)

    def _send_steps(self, steps: Sequence[StepRows]) -> None:
        try:
            filled = [each for each in steps if each.rows]
            if len(filled) > 1:
                self._send_rows(filled)
            elif filled:
                for part in split_rows(filled[0].rows, _FRAME_BYTES):
                    self._send_rows([filled[0]._replace(rows=part)])
        finally:
            for each in steps:
                if each.stage is not None:
                    each.stage.give_back()

    def _sendable(self, step: StepRows) -> Sequence[Row]:
        """Return a step's rows, those that are larger than a message without their values."""
        large = [row for row in step.rows if row.values.nbytes > _MOST_VALUES_BYTES]
        self._lose(step.step, large, "values-too-large")
        return [without_values(row) if row.values.nbytes > _MOST_VALUES_BYTES else row for row in step.rows]

    def _send_rows(self, steps: Sequence[StepRows]) -> None:
        rows = [row for each in steps for row in each.rows]
        table, counts = tensors_table(steps, self._host.place.rank, self._texts)
        self._note_nonfinite(
            counts.sum(axis=1),
            lambda row: (table["step"][row].as_py(), rows[row].meta.layer, rows[row].meta.flag),
        )
        self._host.send(STREAM, table, max(each.step for each in steps))


class MemberSender(TensorSender):
    """Of a process that compresses its pieces and sends them to the leader of its group."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._tables: dict[tuple[RowMeta, ...], int] = {}

    def undelivered(self) -> None:
        self._tables.clear()

    def _take(self, batch: Batch) -> None:
        self._finish(batch)
        pieces = [row for row in batch.rows if row.meta.join is not None]
        if pieces:
            meta, arrays = pack_pieces(batch, pieces, self._tables)
            metas = [row.meta for row in pieces]
            self._note_nonfinite(
                arrays[0][:, NON_FINITE].sum(axis=1),
                lambda row: (batch.step, metas[row].layer, metas[row].flag),
            )
            self._host.tell(self._host.place.tp_ranks[0], meta, arrays)
        if batch.stage is not None:
            batch.stage.give_back()
