"""The leader's side of gathering: batches wait here for the pieces of the other tensor-parallel ranks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ...protocol import layer_name
from ..moments import merge_pieces
from ..moments.part import COLUMNS
from ..points import FLAGS
from .batch import NO_ERROR, Batch, Row, RowMeta, StepRows, identity_of, named_rows
from .compressors import Stage, StagePool, slices_of
from .pieces import join_pieces

_PATIENCE_SECONDS = 5.0
_FIRST_PATIENCE_SECONDS = 30.0
_MOST_BYTES = 64 << 20
_MOST_EARLY = 256


Key = tuple[int, int, int]
"""Number of the settings, step, batch within the step."""


@dataclass
class _Pieces:
    """What one rank sent of one batch: its rows in order."""

    identities: list[tuple[Any, ...]]
    values: list[np.ndarray]
    moments: np.ndarray
    """float64 ``[rows, 11]``, as ``Row.moments``."""
    squares: np.ndarray | None
    """float64 ``[rows, 3]`` where the compression error was measured."""


class _PieceTable(NamedTuple):
    """What a rank sends once of the rows of its batches."""

    identities: list[tuple[Any, ...]]
    shapes: list[tuple[int, ...]]
    slices: list[slice]


@dataclass
class Waiting:
    """A batch of the leader's own on its way out."""

    batch: Batch
    needs: int
    since: float = field(default_factory=time.monotonic)
    pieces: dict[int, _Pieces] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return (self.batch.version, self.batch.step, self.batch.order)

    @property
    def complete(self) -> bool:
        """Whether every piece has arrived."""
        return len(self.pieces) == self.needs


class Joiner:
    """Puts pieces together, in the order of the steps. What does not come in time is given up and counted.

    Pieces and the leader's own batches arrive in any order. Both carry the same key, because every rank
    counts its batches alike; whichever is first waits for the other, pieces in ``_early``, batches in
    ``_waiting``. Only the head of that queue goes out, so that rows reach the hub step by step even where a
    later batch is complete already. Nothing waits for ever: a rank that is late, a queue that is full, or the
    end of the training lets the head go without what is missing, and a tensor of which a piece is missing is
    left out, never shown in part.

    Parameters
    ----------
    ranks : sequence of int
        Global ranks of the tensor-parallel group, the leader first.
    name : callable
        Gives a rank's name for people.
    """

    def __init__(self, ranks: Sequence[int], name: Callable[[int], str], warn: Callable[[str], None]) -> None:
        self._ranks = tuple(ranks)
        self._name = name
        self._warn = warn
        self._waiting: deque[Waiting] = deque()
        self._by_key: dict[Key, Waiting] = {}
        self._early: dict[Key, dict[int, _Pieces]] = {}
        self._tables: dict[tuple[int, int], _PieceTable] = {}
        self._stages = StagePool()
        self._joined: dict[tuple[RowMeta, tuple[int, ...]], RowMeta] = {}
        self._heard: set[int] = set()
        self.lost_rows = 0
        self.bytes_received = 0

    def put(self, batch: Batch) -> None:
        """Take a batch of the leader's own, complete on the host."""
        pieces = sum(row.meta.join is not None for row in batch.rows)
        waiting = Waiting(batch, len(self._ranks) - 1 if pieces else 0)
        if pieces:
            waiting.pieces = self._early.pop(waiting.key, {})
            self._by_key[waiting.key] = waiting
        self._waiting.append(waiting)

    def take(self, rank: int, meta: Mapping[str, Any], payload: memoryview) -> None:
        """Take what another rank sent; raises ``ValueError`` or ``KeyError`` when it cannot be read."""
        pieces = self._read(rank, meta, payload)
        self._heard.add(rank)
        key = (int(meta["version"]), int(meta["step"]), int(meta["order"]))
        self.bytes_received += len(payload)
        waiting = self._by_key.get(key)
        if waiting is not None:
            waiting.pieces[rank] = pieces
            return
        self._early.setdefault(key, {})[rank] = pieces
        while len(self._early) > _MOST_EARLY:
            # The leader never had such a batch, or gave it up.
            del self._early[next(iter(self._early))]

    def ready(self, *, everything: bool = False, caught_up: bool = True) -> Iterator[StepRows]:
        """Give the rows of the batches that can go out, with their memory.

        With ``everything`` no piece is waited for any more. Unless ``caught_up``, messages that have arrived
        are still to be taken, and nobody is late.
        """
        while self._waiting:
            head = self._waiting[0]
            # A batch without pieces waits behind one with pieces too: the order of the steps is what viewers
            # rely on.
            if not head.complete:
                # A rank that nothing has come from yet may still be looking for its leader.
                heard = self._heard.issuperset(self._ranks[1:])
                patience = _PATIENCE_SECONDS if heard else _FIRST_PATIENCE_SECONDS
                late = caught_up and time.monotonic() - head.since > patience
                # A batch that alone is larger still waits for its pieces.
                full = len(self._waiting) > 1 and (
                    sum(waiting.batch.nbytes for waiting in self._waiting) > _MOST_BYTES
                )
                if not (late or full or everything):
                    return
            self._waiting.popleft()
            self._by_key.pop(head.key, None)
            yield self._join(head)

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def _join(self, head: Waiting) -> StepRows:
        batch = head.batch
        if not head.needs:
            return StepRows(batch.step, batch.rows, batch.stage)
        absent = [rank for rank in self._ranks[1:] if rank not in head.pieces]
        mine = [row for row in head.batch.rows if row.meta.join is not None]
        if absent:
            names = ", ".join(self._name(rank) for rank in absent[:5])
            self._warn(
                f"Pieces of {len(mine)} tensors of step {head.batch.step} did not come from {names}. "
                f"These tensors are left out: {named_rows(mine)}."
            )
            return self._without(batch, len(mine))
        others = [head.pieces[rank] for rank in self._ranks[1:]]
        identities = [identity_of(row.meta) for row in mine]
        for rank, pieces in zip(self._ranks[1:], others, strict=True):
            if pieces.identities != identities:
                self._warn(
                    f"{self._name(rank)} traces other tensors than {self._name(self._ranks[0])} in step "
                    f"{head.batch.step}: "
                    "do all ranks build the same model? Tensors that are cut over ranks are left out."
                )
                return self._without(batch, len(mine))
        moments = merge_pieces(
            np.stack([[row.moments for row in mine], *(pieces.moments for pieces in others)])
        )
        # All of them in one piece of memory, the others too, so that they are sent as they lie.
        stage = self._stages.take()
        rows: list[Row] = []
        at = 0
        for row in batch.rows:
            if row.meta.join is None:
                rows.append(row._replace(values=stage.copy(_array(row))))
                continue
            try:
                rows.append(self._one(row, others, at, moments[at], stage))
            except (ValueError, IndexError, RuntimeError) as error:
                self.lost_rows += 1
                self._warn(
                    f"The pieces of {FLAGS[row.meta.flag].title}, {layer_name(row.meta.layer)}, do not fit "
                    f"together: {str(error)[:200]}"
                )
            at += 1
        if batch.stage is not None:
            batch.stage.give_back()
        return StepRows(batch.step, rows, stage)

    def _without(self, batch: Batch, lost: int) -> StepRows:
        self.lost_rows += lost
        return StepRows(batch.step, [row for row in batch.rows if row.meta.join is None], batch.stage)

    def _one(self, row: Row, others: Sequence[_Pieces], at: int, moments: np.ndarray, stage: Stage) -> Row:
        meta = row.meta
        assert meta.join is not None
        pieces = [_array(row).reshape(meta.shape), *(other.values[at] for other in others)]
        stored = join_pieces(meta.join, meta.layer, pieces, stage)
        known = self._joined.get((meta, stored.shape))
        if known is None:
            if len(self._joined) > 10_000:
                self._joined.clear()
            known = self._joined[meta, stored.shape] = meta._replace(shape=tuple(stored.shape), join=None)
        return Row(known, stored, moments, self._error(row, others, at, pieces, stored))

    def _error(
        self, row: Row, others: Sequence[_Pieces], at: int, pieces: Sequence[np.ndarray], stored: np.ndarray
    ) -> Tensor | float:
        join = row.meta.join
        squares = [other.squares[at] for other in others if other.squares is not None]
        if join is None or row.error is NO_ERROR or len(squares) < len(others):
            return NO_ERROR
        # Only tiles that cross the border between ranks are measured here; of all else `stored` is what was
        # joined.
        joined = stored if join.kernel is None else np.concatenate(pieces, join.axis)
        return join.error_of([np.asarray(row.error), *squares], joined, stored, row.meta.layer)

    def _read(self, rank: int, meta: Mapping[str, Any], payload: memoryview) -> _Pieces:
        number = int(meta["table"])
        if "rows" in meta:
            if len(self._tables) > 4096:
                self._tables.clear()
            rows = [tuple(row) for row in meta["rows"]]
            shapes = [tuple(row[-1]) for row in rows]
            self._tables[rank, number] = _PieceTable([row[:-1] for row in rows], shapes, slices_of(shapes))
        identities, shapes, slices = self._tables[rank, number]
        n = len(identities)
        moments = np.frombuffer(payload, np.float64, COLUMNS * n).reshape(n, COLUMNS)
        at, squares = moments.nbytes, None
        if meta.get("measured"):
            squares = np.frombuffer(payload, np.float64, 3 * n, at).reshape(n, 3)
            at += 24 * n
        announced = at + 4 * (slices[-1].stop if slices else 0)
        if announced != len(payload):
            raise ValueError(f"{len(payload)} bytes came, and {announced} were announced")
        numbers = np.frombuffer(payload, np.float32, offset=at) if slices else np.empty(0, np.float32)
        values = [numbers[part].reshape(shape) for part, shape in zip(slices, shapes, strict=True)]
        return _Pieces(identities, values, moments, squares)


def _array(row: Row) -> np.ndarray:
    return row.values if isinstance(row.values, np.ndarray) else row.values.numpy()


def pack_pieces(
    batch: Batch, rows: Sequence[Row], tables: dict[tuple[RowMeta, ...], int]
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return what a member sends of pieces that are complete on the host: a description, and arrays.

    The arrays are the moments, float64 ``[rows, 11]``, and the values. ``tables`` are descriptions that were
    sent before; a new one is added.
    """
    metas = tuple([row.meta for row in rows])
    meta: dict[str, Any] = {"version": batch.version, "step": batch.step, "order": batch.order}
    number = tables.get(metas)
    if number is None:
        if len(tables) > 1024:
            tables.clear()
        number = tables[metas] = len(tables)
        meta["rows"] = [[*identity_of(row), list(row.shape)] for row in metas]
    meta["table"] = number
    moments = np.array([row.moments for row in rows])
    values = [_array(row) for row in rows]
    if any(row.error is not NO_ERROR for row in rows):
        meta["measured"] = True
        squares = np.full((len(rows), 3), np.nan)
        for at, row in enumerate(rows):
            if row.error is not NO_ERROR:
                squares[at] = row.error
        return meta, [moments, squares, *values]
    return meta, [moments, *values]
