"""What a recorded run has of traced tensors: flags, parts, layers, ranks and steps, updated as it grows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa

from ..protocol import Segment, in_ranges
from .query import Query

INDEX_COLUMNS = ["step", "phase", "pass", "rank", "layer", "flag", "part"]
_DISTINCT = ["flag", "phase", "pass", "part", "layer", "rank"]
# What steps are known of.
_STEP_KEYS = ["flag", "phase", "pass"]
_PENDING_ROWS = 1 << 18

Key = tuple[str, str, str]


class SegmentFile(NamedTuple):
    """A file of a stream. ``of`` tells it from one that replaced it."""

    segment: Segment
    of: tuple[int, ...]

    def goes_on(self, now: SegmentFile | None) -> bool:
        """Whether the rows of this file still exist: it is the same, or was sealed."""
        return now is not None and (now == self or (now.segment.sealed and not self.segment.sealed))


FlagEntry = TypedDict(
    "FlagEntry",
    {
        "flag": str,
        "phase": str,
        "pass": str,
        "parts": list[str],
        "layers": list[int],
        "ranks": list[int],
        "steps": list[int],
    },
)
"""What there is of one flag, phase and pass, ascending."""


class TensorIndex:
    """What rows of ``tensors`` there are, without the rows. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process learns what it needs.
        return TensorIndex, ()

    def update(
        self,
        files: Sequence[SegmentFile],
        read: Callable[[Segment, int], Iterator[tuple[pa.RecordBatch, int]]],
    ) -> TensorIndex:
        """Take in unknown rows of ``files``, and return this.

        What is sealed is read once, a tail from where it was read to; a file that is gone or replaced is
        forgotten. ``read`` yields the :data:`INDEX_COLUMNS` of a segment from an offset on, and with each
        batch the next offset.
        """
        with self._lock:
            there = {file.segment.number: file for file in files}
            if not all(file.goes_on(there.get(number)) for number, (file, _) in self._read.items()):
                self._forget()
            for number, file in there.items():
                before, at = self._read.get(number, (None, 0))
                if before != file:
                    at = 0
                elif file.segment.sealed:
                    continue
                self._read[number] = file, self._take(read(file.segment, at), at)
        return self

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> TensorIndex:
        """Return the index of rows with the :data:`INDEX_COLUMNS`."""
        found = cls()
        found._take(((batch, 0) for batch in batches), 0)
        return found

    @classmethod
    def joined(cls, parts: Sequence[tuple[TensorIndex, int, int]]) -> TensorIndex:
        """Return the index of several recordings: of each only steps before one, and ranks so much higher."""
        found = cls()
        for part, until, shift in parts:
            with part._lock:
                retained = {
                    key: {step for step in steps if step < until} for key, steps in part._steps.items()
                }
                for key, steps in retained.items():
                    if steps:
                        found._steps.setdefault(key, set()).update(steps)
                found._keys |= {(*key[:5], key[5] + shift) for key in part._keys if retained.get(key[:3])}
        return found

    def index(self) -> list[FlagEntry]:
        with self._lock:
            found = []
            for key in sorted(self._steps):
                keys = [found_key for found_key in self._keys if found_key[:3] == key]
                parts, layers, ranks = (sorted({each[at] for each in keys}) for at in (3, 4, 5))
                flag, phase, pass_ = key
                entry: FlagEntry = {
                    "flag": flag,
                    "phase": phase,
                    "pass": pass_,
                    "parts": parts,
                    "layers": layers,
                    "ranks": ranks,
                    "steps": sorted(self._steps[key]),
                }
                found.append(entry)
            return found

    def on_lowest(self, query: Query) -> Query:
        """Return the same query of each layer's lowest rank only: the lowest that has it at any step."""
        where = dict(query.where)
        asked = {"flag": query.flag, "phase": query.phase, "pass": query.pass_, "part": query.part}
        wanted = [where.get(name, ask) for name, ask in asked.items()]
        with self._lock:
            lowest: dict[int, int] = {}
            for *texts, layer, rank in self._keys:
                if all(ask is None or ask == text for ask, text in zip(wanted, texts, strict=True)) and (
                    query.layers is None or in_ranges(layer, query.layers)
                ):
                    lowest[layer] = min(rank, lowest.get(layer, rank))
        return query.on_ranks(lowest)

    def _forget(self) -> None:
        self._read: dict[int, tuple[SegmentFile, int]] = {}
        self._keys: set[tuple[Any, ...]] = set()
        self._steps: dict[Key, set[int]] = {}

    def _take(self, read: Iterator[tuple[pa.RecordBatch, int]], at: int) -> int:
        """Take in batches, and return the offset that came with the last one, or ``at``."""
        pending, rows = list[pa.RecordBatch](), 0
        for batch, offset in read:
            pending.append(batch)
            rows, at = rows + batch.num_rows, offset
            if rows >= _PENDING_ROWS:
                self._add(pending)
                pending, rows = [], 0
        self._add(pending)
        return at

    def _add(self, batches: list[pa.RecordBatch]) -> None:
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        distinct = table.group_by(_DISTINCT).aggregate([]).select(_DISTINCT)
        self._keys.update(zip(*(column.to_pylist() for column in distinct.columns), strict=True))
        steps = table.group_by(_STEP_KEYS).aggregate([("step", "distinct")])
        for *key, found in zip(
            *(steps[name].to_pylist() for name in _STEP_KEYS), steps["step_distinct"], strict=True
        ):
            self._steps.setdefault((key[0], key[1], key[2]), set()).update(found.values.to_pylist())
