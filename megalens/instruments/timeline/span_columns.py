"""Rows of the stream ``spans`` as columns, while traces are read: some 90 bytes a span."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol import join_numbers, ranges_text, stream_schema
from .spans import Integers

_ABSENT = {
    "step": 0, "rank": -1, "stage": -1, "chunk": -1, "micro_batch": -1, "start": 0, "end": 0, "count": 1,
    "blocked": 0, "bytes": 0, "peer": -1, "sequence": -1, "clock": 0, "event": 0,
}  # fmt: skip
_WIDE = ("step", "start", "end", "blocked", "bytes", "sequence")
_TEXTS = ("kind", "name", "group", "device")
_MOST_SPANS = 2_000_000
_MOST_TEXT, _MOST_TEXT_BYTES = 200, 1 << 25
_MOST_GROUP_TEXT = 2_000
_ROWS = 1 << 16
_FARTHEST_NS = 30 * 24 * 3600 * 10**9
"""What is so far from the middle of a trace is no time of it."""

Number = NDArray[Any]


class SpanColumns:
    """Columns that grow. ``full`` is set, and ``add`` ignores what comes, when they hold all that is read.

    Texts are kept once each; a group is a text or a tuple of ranks.
    """

    def __init__(self) -> None:
        self._columns = {name: array("q" if name in _WIDE else "i") for name in (*_ABSENT, *_TEXTS)}
        self._codes: dict[str, dict[Any, int]] = {name: {"": 0} for name in _TEXTS}
        self._text_bytes = 0
        self.full = False

    def __len__(self) -> int:
        return len(self._columns["step"])

    def __getitem__(self, name: str) -> Number:
        """Return a column of numbers, or the codes of texts, as a view that can be written to."""
        column = self._columns[name]
        found: Number = np.frombuffer(column, np.int64 if name in _WIDE else np.int32)
        return found

    def set(self, name: str, values: Any) -> None:
        self[name][:] = values

    def code(self, name: str, text: Any) -> int:
        """Return the number of a text; ``…`` where there are too many."""
        codes = self._codes[name]
        if isinstance(text, str):
            text = text[: _MOST_GROUP_TEXT if name == "group" else _MOST_TEXT]
        found = codes.get(text)
        if found is None:
            size = sys.getsizeof(text) + (8 * len(text) if isinstance(text, tuple) else 0)
            if self._text_bytes + size > _MOST_TEXT_BYTES:
                text = "…"
            else:
                self._text_bytes += size
            found = codes.setdefault(text, len(codes))
        return found

    def add(self, kind: str, rank: int, start: int, end: int, **others: Any) -> None:
        """Add a span; one that communicates blocks all the time where nothing else is said."""
        if len(self) >= _MOST_SPANS:
            self.full = True
            return
        row = {
            **_ABSENT, "kind": kind, "name": "", "group": "", "device": "", "rank": rank, "start": start,
            "end": end, "blocked": 0 if kind == "send" else end - start, **others,
        }  # fmt: skip
        for name in _TEXTS:
            row[name] = self.code(name, row[name])
        for name, column in self._columns.items():
            column.append(row[name])

    def extend(self, other: SpanColumns) -> None:
        """Add all spans of other columns, as far as there is room."""
        fits = min(len(other), _MOST_SPANS - len(self))
        self.full |= other.full or fits < len(other)
        for name, column in self._columns.items():
            values = other[name][:fits]
            if name in _TEXTS:
                codes = np.array([self.code(name, text) for text in other._codes[name]], np.int32)
                values = codes[values]
            column.frombytes(values.tobytes())

    def of_kind(self, *kinds: str) -> NDArray[np.bool_]:
        known = [self._codes["kind"].get(kind, -1) for kind in kinds]
        found: NDArray[np.bool_] = np.isin(self["kind"], known)
        return found

    def keep(self, rows: NDArray[np.bool_]) -> list[int]:
        """Keep some spans, and return the numbers of the events of the others."""
        lost: list[int] = self["event"][~rows].tolist()
        if lost:
            self._columns = {
                name: array(column.typecode, self[name][rows].tobytes())
                for name, column in self._columns.items()
            }
        return lost

    def name_groups(self) -> None:
        """Make ranges of the tuples of ranks, to which each span's own rank belongs, and set the peers."""
        texts = list(self._codes["group"])
        group, rank = self["group"], self["rank"]
        tuples = np.array([isinstance(each, tuple) for each in texts])
        rows = np.flatnonzero(tuples[group])
        messages = self.of_kind("send", "receive")
        pairs, inverse = np.unique(group[rows].astype(np.int64) << 32 | rank[rows], return_inverse=True)
        by_pair = np.argsort(inverse, kind="stable")
        first = np.searchsorted(inverse[by_pair], np.arange(len(pairs) + 1))
        for at, pair in enumerate(pairs.tolist()):
            code, own = pair >> 32, pair & 0xFFFFFFFF
            ranks = sorted({*texts[code], own})
            mine = rows[by_pair[first[at] : first[at + 1]]]
            group[mine] = self.code("group", ranges_text(join_numbers(ranks)))
            if len(ranks) == 2:
                self["peer"][mine[messages[mine]]] = next(each for each in ranks if each != own)

    def add_steps(self) -> None:
        """Add a step from the first to the last span of each rank's step that has none."""
        order = np.lexsort((self["step"], self["rank"]))
        rank, step = self["rank"][order], self["step"][order]
        if not len(order):
            return
        first = np.flatnonzero(np.concatenate([[True], (rank[1:] != rank[:-1]) | (step[1:] != step[:-1])]))
        known = np.add.reduceat(self.of_kind("step")[order], first) > 0
        begin = np.minimum.reduceat(self["start"][order], first)
        end = np.maximum.reduceat(self["end"][order], first)
        stage = np.maximum.reduceat(self["stage"][order], first)
        rows = np.flatnonzero(~known)
        fits = rows[: max(0, _MOST_SPANS - len(self))]
        self.full |= len(fits) < len(rows)
        one = np.ones(len(fits), np.int64)
        columns = {
            **{name: value * one for name, value in _ABSENT.items()},
            **{name: self.code(name, "step" if name == "kind" else "") * one for name in _TEXTS},
            "rank": rank[first[fits]],
            "step": step[first[fits]],
            "start": begin[fits],
            "end": end[fits],
            "blocked": end[fits] - begin[fits],
            "stage": stage[fits],
        }
        for name, column in self._columns.items():
            column.frombytes(columns[name].astype(np.int64 if name in _WIDE else np.int32).tobytes())

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows in the order of steps, some at a time."""
        schema = stream_schema("spans")
        texts = {
            name: pa.array([each if isinstance(each, str) else "" for each in self._codes[name]], pa.string())
            for name in _TEXTS
        }
        order = np.argsort(self["step"], kind="stable")
        for begin in range(0, len(order), _ROWS):
            rows = order[begin : begin + _ROWS]
            columns = {
                each.name: texts[each.name].take(pa.array(self[each.name][rows]))
                if each.name in texts
                else pa.array(self[each.name][rows]).cast(each.type)
                for each in schema
            }
            yield pa.table(columns, schema=schema)


def near(start: Integers, end: Integers, of: Any = 0) -> NDArray[np.bool_]:
    """Return which spans are of one trace, each of ``of``: none is far from the middle one."""
    if not len(start):
        return np.zeros(0, bool)
    of = np.broadcast_to(of, start.shape)
    order = np.lexsort((start, of))
    first = np.flatnonzero(np.concatenate([[True], np.diff(of[order]) != 0]))
    size = np.diff(np.append(first, len(order)))
    middle = np.empty(len(order), np.int64)
    middle[order] = np.repeat(start[order[first + size // 2]], size)
    found: NDArray[np.bool_] = np.abs(start - middle) < _FARTHEST_NS
    found &= np.abs(end - middle) < _FARTHEST_NS
    return found
