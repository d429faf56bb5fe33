"""Where the messages of a stream file lie, and which steps they hold."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..protocol.arrow_columns import message_header, table_field, u32
from .gathering import even_stride

__all__ = ["MessageMap", "LikeHeads"]

_RECORD_BATCH = 3

Longs = NDArray[np.int64]


# Heads of an Arrow stream's record batches that differ in sizes only: where in them these stand, so that
# thousands are read at once.
@dataclass(frozen=True)
class LikeHeads:
    """Where the sizes stand in a head. What one writer writes of one schema has the same heads but for these.

    Attributes
    ----------
    size : int
        Bytes of a head, from the beginning of its message to its body.
    rows, body, nodes, buffers : int
        Place of the number of rows and of the body's length, and where the columns' lengths and buffers begin; in numbers of 64 bits.
    counts : tuple of int
        How many lengths and buffers there are.
    """

    size: int
    rows: int
    body: int
    nodes: int
    buffers: int
    counts: tuple[int, int]
    _template: Longs
    _fixed: NDArray[np.bool_]

    @staticmethod
    def of(head: bytes) -> LikeHeads | None:
        """Look into a head, from its message's beginning on; None for one of another form: of a compressed or empty batch, of other alignment.

        Raises
        ------
        struct.error
            When it is damaged.
        """
        metadata = memoryview(head)[8:]
        kind, batch, _ = message_header(metadata)
        table = u32(metadata, 0)
        if kind != _RECORD_BATCH or table_field(metadata, batch, 3):
            return None
        places = [table_field(metadata, table, 3), *(table_field(metadata, batch, at) for at in range(3))]
        if not all(places):
            return None
        body, rows = places[0] + 8, places[1] + 8
        nodes, buffers = (at + u32(metadata, at) for at in places[2:])
        counts = u32(metadata, nodes), u32(metadata, buffers)
        # After the number of entries, each of which has two numbers.
        nodes, buffers = nodes + 12, buffers + 12
        if len(head) % 8 or any(at % 8 for at in (body, rows, nodes, buffers)):
            return None
        if nodes + 16 * counts[0] > len(head) or buffers + 16 * counts[1] > len(head):
            return None
        template = np.frombuffer(head, np.int64)
        fixed = np.ones(len(template), bool)
        body, rows, nodes, buffers = body // 8, rows // 8, nodes // 8, buffers // 8
        fixed[[body, rows]] = False
        fixed[nodes : nodes + 2 * counts[0]] = False
        fixed[buffers : buffers + 2 * counts[1]] = False
        return LikeHeads(len(head), rows, body, nodes, buffers, counts, template, fixed)

    def chain(self, words: Longs) -> Longs:
        """Return where messages begin in ``words``, from its beginning on, as long as their heads may be like this one and are in it, and where the last of them ends; in bytes."""
        first, size = self._template[0], self.size // 8
        at, before, most = 0, 0, len(words) - size
        found: list[Longs] = []
        while at <= most and words[at] == first:
            body = int(words[at + self.body])
            if body < 0 or body % 8:
                break
            whole, count = size + body // 8, 1
            if whole == before:
                # Most messages are as long as the one before.
                like = (words[at : most + 1 : whole] == first) & (
                    words[at + self.body : most + self.body + 1 : whole] == body
                )
                count = len(like) if like.all() else int(np.argmin(like))
            found.append(np.arange(at, at + count * whole, whole))
            at, before = at + count * whole, whole
        found.append(np.array([at], np.int64))
        return 8 * np.concatenate(found)

    def read(self, words: Longs, places: Longs) -> Longs:
        """Return the heads at some places of ``words``, a row each; a view where all are equally far apart."""
        apart = even_stride(places)
        length = len(self._template)
        if apart is None:
            heads: Longs = words[places[:, None] + np.arange(length)]
            return heads
        return np.lib.stride_tricks.as_strided(
            words[int(places[0]) :], (len(places), length), (8 * apart, 8), writeable=False
        )

    def like(self, heads: Longs) -> NDArray[np.bool_]:
        """Return which of some heads are like this one."""
        if len(heads) > 1 and (heads == heads[0]).all():
            return np.repeat(self.like(heads[:1]), len(heads))
        found: NDArray[np.bool_] = (heads[:, self._fixed] == self._template[self._fixed]).all(axis=1)
        return found


class MessageMap:
    """Of each message where it begins and ends, its first and last step, and of which kind its rows are: 0 where nobody said."""

    def __init__(self) -> None:
        self._numbers = [array("q") for _ in range(5)]

    def __len__(self) -> int:
        return len(self._numbers[0])

    def add(self, begin: int, end: int, low: int, high: int, kind: int = 0) -> None:
        """Add a message."""
        for numbers, number in zip(self._numbers, (begin, end, low, high, kind), strict=True):
            numbers.append(number)

    def extend(self, *columns: NDArray[np.int64]) -> None:
        """Add messages: what :meth:`add` takes, of each."""
        for numbers, column in zip(self._numbers, columns, strict=True):
            numbers.frombytes(column.tobytes())

    def all(self) -> NDArray[np.int64]:
        """Return all messages as they lie: a row each, of the five numbers."""
        return np.array(self._numbers, np.int64).T

    def within(self, first: int | None, last: int | None) -> NDArray[np.int64]:
        """Return the messages that have steps from ``first`` to ``last``, or may have, by their first steps: a row each, of the five numbers."""
        found, inside = self._split(first, last)
        chosen = found[inside]
        return chosen[np.argsort(chosen[:, 2], kind="stable")]

    def among(self, first: int | None, last: int | None) -> NDArray[np.int64]:
        """Return the messages that have or may have such steps, as they lie: a row each, of the five numbers."""
        found, inside = self._split(first, last)
        return found[inside]

    def _split(self, first: int | None, last: int | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        found = self.all()
        inside = np.ones(len(found), bool)
        if first is not None:
            inside &= found[:, 3] >= first
        if last is not None:
            inside &= found[:, 2] <= last
        return found, inside
