"""Rows that are asked for, and how they come: in chunks of whole steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from ....protocol import Ranges

__all__ = ["Chunk", "Wanted", "read_ahead"]

_AHEAD = 4
_AHEAD_ROWS = 400_000

Chunk = dict[str, NDArray[Any]]
"""Columns of rows, in any order. Every row of a step is in the same chunk, and steps of later chunks are later.

``place`` (int32) counts through :attr:`Wanted.names`; ``step`` (int64) and the columns that are wanted are as in the stream.
"""


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Attributes
    ----------
    names : mapping
        Names of tensors by stat. A row's place counts through all of them, in this order.
    columns : tuple of str
        Columns besides ``place`` and ``step``: numbers of the stream ``moments``, and :data:`~.stages.STAGE`.
    ranges : mapping
        Ranges of ``rank`` and ``stage``.
    first, last : int or None
        Inclusive bounds of the step.
    """

    names: Mapping[str, Sequence[str]]
    columns: tuple[str, ...]
    ranges: Mapping[str, Ranges] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None

    def first_places(self) -> dict[str, int]:
        """Return the place of each stat's first name."""
        found, place = {}, 0
        for stat, names in self.names.items():
            found[stat] = place
            place += len(names)
        return found


def read_ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Read the next chunks, in a thread, while the caller works on this one: one, or a few small ones, which do not all take equally long."""
    with ThreadPoolExecutor(1, "megalens-moments") as thread:
        coming = deque([thread.submit(next, chunks, None)])
        while (chunk := coming.popleft().result()) is not None:
            few = max(1, min(_AHEAD, _AHEAD_ROWS // max(1, len(chunk["step"]))))
            while len(coming) < few:
                coming.append(thread.submit(next, chunks, None))
            yield chunk
