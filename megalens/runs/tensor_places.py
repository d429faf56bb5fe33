"""What a recorded run has of traced tensors: flags, parts, layers, ranks and steps. Kept up to date while the recording grows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol import in_ranges
from .query import Query

__all__ = ["PLACE_COLUMNS", "TensorPlaces", "places_of_kinds"]

PLACE_COLUMNS = ["step", "phase", "pass", "rank", "layer", "flag", "part"]
_DISTINCT = ["flag", "phase", "pass", "part", "layer", "rank"]
# What steps are known of.
_STEP_KEYS = ["flag", "phase", "pass"]
_HELD_ROWS = 1 << 18

Key = tuple[str, str, str]


class TensorPlaces:
    """Places of rows, without the rows. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Any = None
        self._forget()

    def update(
        self, of: Any, read: Callable[[int], Iterator[tuple[pa.RecordBatch | None, int]]]
    ) -> TensorPlaces:
        """Take in rows that are not known yet, and return this.

        Parameters
        ----------
        of : object
            Which file they are of: where it is another one than last time, what was known is forgotten.
        read : callable
            Yields :data:`PLACE_COLUMNS` of the rows from a place of the file on, 0 at first, and after each batch the place from which to go on.
        """
        with self._lock:
            if of != self._of:
                self._forget()
                self._of = of
            held: list[pa.RecordBatch] = []
            for batch, at in read(self._at):
                if batch is not None:
                    held.append(batch)
                if batch is None or sum(each.num_rows for each in held) >= _HELD_ROWS:
                    self._add(held, at)
                    held = []
            if held:
                self._add(held, at)
        return self

    @classmethod
    def joined(cls, parts: Sequence[tuple[TensorPlaces, int]]) -> TensorPlaces:
        """Return what there is in several recordings, in each of steps before one only."""
        found = cls()
        for part, until in parts:
            with part._lock:
                kept = {key: {step for step in steps if step < until} for key, steps in part._steps.items()}
                for key, steps in kept.items():
                    if steps:
                        found._steps.setdefault(key, set()).update(steps)
                found._places |= {place for place in part._places if kept.get(place[:3])}
        return found

    def index(self) -> list[dict[str, Any]]:
        """Return what there is of each flag, phase and pass: parts, layers, ranks and steps, ascending."""
        with self._lock:
            found = []
            for key in sorted(self._steps):
                places = [place for place in self._places if place[:3] == key]
                lists = {
                    name: sorted({place[at] for place in places})
                    for name, at in (("parts", 3), ("layers", 4), ("ranks", 5))
                }
                flag, phase, pass_ = key
                steps = sorted(self._steps[key])
                found.append({"flag": flag, "phase": phase, "pass": pass_, **lists, "steps": steps})
            return found

    def on_lowest(self, query: Query) -> Query:
        """Return the same query of each layer's lowest rank only: the lowest that has it at any step."""
        where = dict(query.where)
        asked = {"flag": query.flag, "phase": query.phase, "pass": query.pass_, "part": query.part}
        wanted = [where.get(name, ask) for name, ask in asked.items()]
        with self._lock:
            lowest: dict[int, int] = {}
            for *texts, layer, rank in self._places:
                if all(ask is None or ask == text for ask, text in zip(wanted, texts, strict=True)) and (
                    query.layers is None or in_ranges(layer, query.layers)
                ):
                    lowest[layer] = min(rank, lowest.get(layer, rank))
        return query.on_ranks(lowest)

    def _forget(self) -> None:
        self._at = 0
        self._places: set[tuple[Any, ...]] = set()
        self._steps: dict[Key, set[int]] = {}

    def _add(self, batches: list[pa.RecordBatch], at: int) -> None:
        self._at = at
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        distinct = table.group_by(_DISTINCT).aggregate([]).select(_DISTINCT)
        self._places.update(zip(*(column.to_pylist() for column in distinct.columns), strict=True))
        steps = table.group_by(_STEP_KEYS).aggregate([("step", "distinct")])
        for *key, found in zip(
            *(steps[name].to_pylist() for name in _STEP_KEYS), steps["step_distinct"], strict=True
        ):
            self._steps.setdefault((key[0], key[1], key[2]), set()).update(found.values.to_pylist())


def places_of_kinds(messages: NDArray[np.int64], kinds: Mapping[int, pa.RecordBatch]) -> pa.RecordBatch:
    """Return :data:`PLACE_COLUMNS` of rows that are as good as all rows of some messages: every place comes, and every step of all that steps are known of.

    Parameters
    ----------
    messages : array
        As of :meth:`ArrowsMap.indexed`, at least one.
    kinds : mapping
        Likewise.
    """
    pieces = []
    for number in np.unique(messages[:, 4]).tolist():
        steps = messages[messages[:, 4] == number, 2]
        known = kinds[number].select(PLACE_COLUMNS[1:])
        keys = zip(*(known.column(name).to_pylist() for name in _STEP_KEYS), strict=True)
        firsts = list({key: place for place, key in enumerate(keys)}.values())
        places = np.concatenate([np.arange(known.num_rows), np.tile(firsts, len(steps))])
        step = np.concatenate([np.full(known.num_rows, steps[0]), np.repeat(steps, len(firsts))])
        found = known.take(pa.array(places, pa.int64()))
        pieces.append(pa.RecordBatch.from_arrays([pa.array(step), *found.columns], PLACE_COLUMNS))
    return pa.concat_batches(pieces)
