"""What a recording of the stream ``moments`` holds, found while its rows go by and kept in the footer of the
packed file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .moments import MOMENT_STATS
from .outside import parse_json

__all__ = ["INDEXED_COLUMNS", "MOMENT_INDEX", "MOMENT_SAME", "MomentIndex", "StatIndex"]

MOMENT_INDEX = b"megalens.moments"
"""Key of the index in the metadata of a packed file."""
MOMENT_SAME = b"megalens.moments.same"
"""Key of what is the same in all rows of a stat, which spares its reading: a JSON object of the stats, each
with an object of columns and their only value.
"""

_OFTEN_SAME = ("nan_count", "inf_count", "rounding", "loss_scale")
INDEXED_COLUMNS = ["step", "samples", "stat", "name", *_OFTEN_SAME]
"""Columns that :meth:`MomentIndex.add` looks at."""

_VERSION = 1


@dataclass(frozen=True)
class StatIndex:
    """What there is of one stat: rows, the first and last step, how many steps, and the names."""

    stat: str
    rows: int
    first: int
    last: int
    steps: int
    names: list[str]


class _Stat:
    def __init__(self) -> None:
        self.rows = 0
        self.steps: set[int] = set()
        self.names: dict[str, None] = {}
        self.last: pa.Array | None = None
        self.same: dict[str, float] | None = None

    def compare(self, columns: Mapping[str, NDArray[np.float64]]) -> None:
        """Keep of what was the same in all rows what is so in these, of which there is one at least."""
        if self.same is None:
            self.same = {name: float(column[0]) for name, column in columns.items()}
        # What is not known, or infinite, is the same as nothing.
        self.same = {
            name: value
            for name, value in self.same.items()
            if math.isfinite(value) and bool((columns[name] == value).all())
        }


class MomentIndex:
    """Counts rows as they are appended."""

    def __init__(self) -> None:
        self._stats: dict[str, _Stat] = {}
        self.samples = False
        """Whether steps are known as samples too."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch of the stream."""
        if not batch.num_rows:
            return
        self.samples = self.samples or bool(np.max(batch["samples"].to_numpy()) >= 0)
        stats = batch["stat"].dictionary_encode()
        known, code = stats.dictionary.to_pylist(), stats.indices.to_numpy()
        step = batch["step"].to_numpy()
        same = {name: batch[name].to_numpy() for name in _OFTEN_SAME}
        for at, stat in enumerate(known):
            of, names = code == at, batch["name"]
            if len(known) > 1:
                names = names.filter(pa.array(of))
            self.count(stat, len(names), np.unique(step[of]).tolist())
            found = self._stats[stat]
            found.compare({name: column[of] for name, column in same.items()})
            # The same tensors come at nearly every step.
            if found.last is None or not names.equals(found.last):
                found.names.update(dict.fromkeys(names.unique().to_pylist()))
                found.last = names

    def count(self, stat: str, rows: int, steps: Iterable[int], names: Iterable[str] = ()) -> None:
        """Take so many rows of one stat, their steps, and names that are among theirs."""
        found = self._stats.setdefault(stat, _Stat())
        found.rows += rows
        found.steps.update(steps)
        found.names.update(dict.fromkeys(names))

    def stats(self) -> list[StatIndex]:
        """Return what there is, in the order of :data:`MOMENT_STATS`, names sorted."""
        return [
            StatIndex(
                stat, found.rows, min(found.steps), max(found.steps), len(found.steps), sorted(found.names)
            )
            for stat in MOMENT_STATS
            if (found := self._stats.get(stat)) is not None
        ]

    def text(self) -> bytes:
        """Return the index as JSON."""
        stats = [
            {
                "stat": one.stat,
                "rows": one.rows,
                "first": one.first,
                "last": one.last,
                "steps": one.steps,
                "names": one.names,
            }
            for one in self.stats()
        ]
        return json.dumps(
            {"version": _VERSION, "samples": self.samples, "stats": stats}, ensure_ascii=False
        ).encode()

    def same_text(self) -> bytes:
        """Return what is the same in all rows of each stat as JSON."""
        return json.dumps({stat: found.same for stat, found in self._stats.items()}).encode()

    @staticmethod
    def read_same(metadata: Mapping[bytes, bytes] | None) -> dict[str, dict[str, float]]:
        """Return of each stat of a file the columns that have only one value, and that; nothing where the
        metadata do not say it.
        """
        try:
            said: Any = parse_json((metadata or {}).get(MOMENT_SAME, b"{}"))
            return {
                stat: {name: _number(same[name]) for name in _OFTEN_SAME if name in same}
                for stat, same in said.items()
                if stat in MOMENT_STATS
            }
        except (ValueError, TypeError, AttributeError):
            return {}

    @staticmethod
    def read(metadata: Mapping[bytes, bytes] | None) -> tuple[list[StatIndex], bool] | None:
        """Return the index that a file's metadata have, and whether steps are known as samples; None where
        there is none that can be read.
        """
        text = (metadata or {}).get(MOMENT_INDEX)
        if text is None:
            return None
        try:
            said: Any = parse_json(text)
            if said["version"] != _VERSION or not isinstance(said["samples"], bool):
                return None
            return [_stat_index(one) for one in said["stats"]], said["samples"]
        except (ValueError, KeyError, TypeError):
            return None


def _number(said: Any) -> float:
    if type(said) not in (int, float):
        raise TypeError("not a number")
    return float(said)


def _stat_index(said: Any) -> StatIndex:
    numbers = [said[name] for name in ("rows", "first", "last", "steps")]
    names = said["names"]
    if (
        said["stat"] not in MOMENT_STATS
        or not all(type(number) is int for number in numbers)
        or not isinstance(names, list)
        or not all(isinstance(name, str) for name in names)
    ):
        raise ValueError("not an index of moments")
    rows, first, last, steps = numbers
    if not 1 <= steps <= min(rows, last - first + 1):
        raise ValueError("not an index of moments")
    return StatIndex(said["stat"], rows, first, last, steps, names)
