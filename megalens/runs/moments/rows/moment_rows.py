"""Where the rows of the stream ``moments`` lie."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....protocol import Ranges, stream_schema

__all__ = [
    "ROWS_SCHEMA",
    "MomentRows",
    "Progress",
    "StatIndex",
    "STAGE",
    "STAGES",
    "stage_codes",
    "Chunk",
    "Wanted",
    "read_ahead",
]

_CODES = pa.dictionary(pa.int32(), pa.utf8())
ROWS_SCHEMA = pa.schema(
    pa.field("name_id", pa.int32())
    if field.name == "name"
    else pa.field(field.name, _CODES if pa.types.is_string(field.type) else field.type)
    for field in stream_schema("moments")
)
"""Rows as they are answered: the stream's columns, texts as dictionaries, and for the name its number."""

STAGE = "gradient_stage"
"""The column. In a chunk it has the place in :data:`STAGES`."""

_AHEAD = 4
_AHEAD_ROWS = 400_000

Chunk = dict[str, NDArray[Any]]
"""Columns of rows, in any order. Every row of a step is in the same chunk, and steps of later chunks are later.

``place`` (int32) counts through :attr:`Wanted.names`; ``step`` (int64) and the columns that are wanted are as in the stream.
"""


# Rows that are asked for, and how they come: in chunks of whole steps.
@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Attributes
    ----------
    names : mapping
        Names of tensors by stat. A row's name index counts through all of them, in this order.
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
        """Return the index of each stat's first name."""
        found, place = {}, 0
        for stat, names in self.names.items():
            found[stat] = place
            place += len(names)
        return found


@dataclass(frozen=True)
class StatIndex:
    """What there is of one stat: rows, the first and last step, how many steps, and the names."""

    stat: str
    rows: int
    first: int
    last: int
    steps: int
    names: list[str]


def read_ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Read the next chunks, several small ones or one large, in a thread while the caller works."""
    with ThreadPoolExecutor(1, "megalens-moments") as thread:
        coming = deque([thread.submit(next, chunks, None)])
        while (chunk := coming.popleft().result()) is not None:
            few = max(1, min(_AHEAD, _AHEAD_ROWS // max(1, len(chunk["step"]))))
            while len(coming) < few:
                coming.append(thread.submit(next, chunks, None))
            yield chunk


STAGES = ("pre_clip", "backward", "pre_step", "backward_scaled", "")
"""From the strongest statement to none: what holds of all rows of a group is the last of theirs. A word that is none of these states nothing."""


# At which stage gradients were measured, as numbers that merge.
def stage_codes(words: pa.DictionaryArray) -> NDArray[np.int8]:
    """Return each row's index in :data:`STAGES`."""
    # Other programs may have packed what nobody said as null: the last.
    known: list[Any] = [*words.dictionary.to_pylist(), ""]
    places = [STAGES.index(word if word in STAGES else "") for word in known]
    codes: NDArray[np.int8] = np.array(places, np.int8)[words.indices.fill_null(-1).to_numpy()]
    return codes


Progress = Callable[[int, int, str], object]
"""Called with (done, total, what is being done); raise from it to cancel."""


class MomentRows(Protocol):
    """A source of rows that may grow."""

    @property
    def version(self) -> str:
        """Changes whenever there are more rows."""

    @property
    def samples(self) -> bool:
        """Whether a number of samples is known with each step."""

    @property
    def warnings(self) -> list[str]:
        """Sentences about what is superseded, left out or unreadable."""

    def refresh(self, progress: Progress | None = None) -> bool:
        """Look for new rows, and return whether there were any."""

    def stats(self) -> list[StatIndex]:
        """Return what there is, as it was found by the last refresh."""

    def chunks(self, wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of complete steps, in the order of their steps."""

    def close(self) -> None:
        """Close files. Safe twice."""
