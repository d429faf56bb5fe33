"""A question about moments as tasks of an engine: over pieces of rows, then over what these have merged.

A task reads whole pieces (a sealed segment or a row group) and merges the rows of each cell that it has. The
partial cells of tasks that have the same steps, such as those of a job's ranks, merge in a tree. What is left
are pieces in the order of their steps, which whoever asks reads as any others: a step that two of them have
is merged once more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....protocol import LAST_STEP
from ...dask_engine import QuestionTasks
from ..rows.pieces import (
    Chunk,
    Listed,
    NotShown,
    Piece,
    PieceReading,
    Wanted,
    complete_steps,
    in_question,
    joined,
)
from .cells import CellKeys, Cells, merge_cells

# What a task reads at least and at most, and how many tasks there are between these bounds: each costs client
# and scheduler some ms, and the last ones leave workers idle.
_TASK_ROWS, _MOST_TASK_ROWS, _TASKS, _TASKS_A_WORKER = 400_000, 1_600_000, 48, 4
_FAN_IN = 8
# Fewer cost more to send than they take here.
_LEAST_TASKS = 4

_Found = tuple[Chunk, NotShown | None]


class _Task(NamedTuple):
    """A task: the steps of its rows, and what it will have given."""

    low: int
    high: int
    future: Any

    def overlaps(self, low: int, high: int) -> bool:
        """Whether it has at least half of the steps of the shorter one of the two."""
        common = min(self.high, high) - max(self.low, low) + 1
        return 2 * common >= min(self.high - self.low, high - low) + 1


class _MergedPiece(Piece):
    """Rows that a task has merged."""

    samples = False

    def __init__(self, low: int, high: int, wanted: Wanted, found: Callable[[], Chunk]) -> None:
        self.low, self.high, self._found = low, high, found
        self.listed = dict.fromkeys(wanted.names, Listed(0, np.zeros(0, np.int64), ()))

    def read(self, reading: PieceReading) -> Chunk:
        return self._found()


def planned_chunks(
    tasks: QuestionTasks, pieces: Sequence[Piece], wanted: Wanted, keys: CellKeys, stop: threading.Event
) -> Iterator[Chunk]:
    """Read the wanted rows as ``complete_steps`` does, those of a cell merged: by tasks, where there is work
    for several. Raises ``ClientError``, ``cancelled`` soon after ``stop`` was set.
    """
    asked = in_question(pieces, wanted)
    rows = sum(_rows(piece, wanted) for piece in asked)
    shares = _shares(asked, wanted, _TASK_ROWS)
    if len(shares) >= _TASKS:
        most = rows // max(_TASKS, _TASKS_A_WORKER * tasks.workers)
        shares = _shares(asked, wanted, max(_TASK_ROWS, min(most, _MOST_TASK_ROWS)))
    if len(shares) < _LEAST_TASKS:
        yield from complete_steps(pieces, wanted)
        return
    waiting = dict[int, Any]()

    def arrived(at: int) -> Chunk:
        found: _Found = tasks.result(waiting[at], stop)
        chunk, left_out = found
        # Workers may forget what has arrived here.
        del waiting[at]
        if wanted.left_out is not None and left_out is not None:
            wanted.left_out.include(left_out)
        return chunk

    try:
        nodes = _planned(tasks, shares, wanted, keys)
        waiting |= {at: node.future for at, node in enumerate(nodes)}
        coming = [
            _MergedPiece(node.low, node.high, wanted, partial(arrived, at)) for at, node in enumerate(nodes)
        ]
        del nodes
        yield from complete_steps(coming, replace(wanted, left_out=None))
    finally:
        tasks.cancel()


def _rows(piece: Piece, wanted: Wanted) -> int:
    return sum(of.rows for stat, of in piece.listed.items() if stat in wanted.names)


def _shares(pieces: Sequence[Piece], wanted: Wanted, enough: int) -> list[list[Piece]]:
    """Return pieces, in their order, in shares of about so many rows."""
    shares, rows = list[list[Piece]](), enough
    for piece in pieces:
        if rows >= enough:
            shares.append([])
            rows = 0
        shares[-1].append(piece)
        rows += _rows(piece, wanted)
    return shares


def _planned(tasks: QuestionTasks, shares: list[list[Piece]], wanted: Wanted, keys: CellKeys) -> list[_Task]:
    """Start the tasks, and return those whose rows come here, in the order of their first steps."""
    spans = [(share[0].low, max(piece.high for piece in share)) for share in shares]
    before = np.maximum.accumulate([-1, *(high for _, high in spans[:-1])]).tolist()
    others = list(zip(before, [*(low for low, _ in spans[1:]), LAST_STEP + 1], strict=True))
    keys = _task_keys(keys)
    futures = tasks.submit(_read, list(zip(shares, others, strict=True)), wanted, keys)
    nodes = [_Task(*span, future) for span, future in zip(spans, futures, strict=True)]
    while len(groups := _together(nodes)) < len(nodes):
        several = [group for group in groups if len(group) > 1]
        made = iter(tasks.submit(_merge, [(group,) for group in several], wanted, keys))
        nodes = [
            _Task(group[0].low, max(node.high for node in group), next(made)) if len(group) > 1 else group[0]
            for group in groups
        ]
    return nodes


def _together(nodes: Sequence[_Task]) -> list[list[_Task]]:
    """Return neighbours that have the same steps, or nearly, together."""
    groups: list[list[_Task]] = []
    for node in nodes:
        group = groups[-1] if groups else []
        if 0 < len(group) < _FAN_IN and node.overlaps(group[0].low, max(each.high for each in group)):
            group.append(node)
        else:
            groups.append([node])
    return groups


def _task_keys(keys: CellKeys) -> CellKeys:
    """Return keys by which rows merge into rows of the same question: those of a group have its first name.

    Of a ratio each name stays, since both sides must have it.
    """
    names = np.arange(len(keys.codes))
    if not len(keys.pairs):
        first = np.zeros(int(keys.codes.max(initial=-1)) + 1, np.int64)
        first[keys.codes[::-1]] = names[::-1]
        names = first[keys.codes]
    return CellKeys(names, np.zeros(0, np.int64), len(names), keys.rows)


# What tasks run.
def _read(pieces: Sequence[Piece], others: tuple[int, int], wanted: Wanted, keys: CellKeys) -> _Found:
    """Return the wanted rows of pieces, merged."""
    highs = np.maximum.accumulate([piece.high for piece in pieces])
    if not any(piece.low < high for piece, high in zip(pieces[1:], highs, strict=False)):
        return _merged(pieces, others, wanted, keys)
    # Rows of ranks that have the same steps need not be put in order first.
    whole = replace(wanted, left_out=None)
    found = [(piece.low, piece.high, _merged([piece], others, whole, keys)) for piece in pieces]
    return _merge(found, wanted, keys)


def _merge(found: Sequence[tuple[int, int, _Found]], wanted: Wanted, keys: CellKeys) -> _Found:
    """Return the rows of several tasks, merged."""
    pieces = [_MergedPiece(low, high, wanted, partial(dict, chunk)) for low, high, (chunk, _) in found]
    before = [left_out for _, _, (_, left_out) in found if left_out is not None]
    return _merged(pieces, (-1, LAST_STEP + 1), wanted, keys, before)


def _merged(
    pieces: Sequence[Piece],
    others: tuple[int, int],
    wanted: Wanted,
    keys: CellKeys,
    before: Sequence[NotShown] = (),
) -> _Found:
    # Tasks of one worker may be given the same object.
    left_out = None if wanted.left_out is None else wanted.left_out.anew(before)
    chunks = complete_steps(pieces, replace(wanted, left_out=left_out), others)
    return _merged_rows(merge_cells(chunks, keys, wanted.columns), keys), left_out


def _merged_rows(found: Iterator[Cells], keys: CellKeys) -> Chunk:
    chunks = list[Chunk]()
    for cells in found:
        (merged,) = cells.sides
        scale = np.where(merged.pop("scaled"), np.nan, 1.0)
        index = cells.keys[0].astype(np.int32)
        chunk: Chunk = {"name_index": index, "step": cells.step, "loss_scale": scale}
        chunks.append(chunk | dict(zip(keys.rows, cells.keys[1:], strict=True)) | merged)
    # What is nowhere, as most are of errors and of values that are not finite, takes no bytes on its way.
    return {
        name: column if column.any() else np.broadcast_to(column.dtype.type(0), len(column))
        for name, column in joined(chunks).items()
    }
