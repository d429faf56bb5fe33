"""Sources of rows of the stream ``moments``, and what is asked of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....protocol import Ranges, stream_schema

_CODES = pa.dictionary(pa.int32(), pa.utf8())
ROWS_SCHEMA = pa.schema(
    pa.field("name_id", pa.int32())
    if field.name == "name"
    else pa.field(field.name, _CODES if pa.types.is_string(field.type) else field.type)
    for field in stream_schema("moments")
)
"""Rows of an answer: the stream's columns, texts as dictionaries, and the number of the name."""

STAGE = "gradient_stage"
"""The column. In a chunk it has the index in :data:`STAGES`."""

_AHEAD = 4
_AHEAD_ROWS = 400_000

Chunk = dict[str, NDArray[Any]]
"""Columns of rows, ordered by step. All rows of a step are in one chunk, and later chunks have later steps.

``name_index`` (int32) is an index into :attr:`Wanted.names`; ``step`` (int64) and the rest are
as in the stream.
"""


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Attributes
    ----------
    names : mapping
        Names of tensors by stat. A row's name index counts through all of them, in this order.
    columns : tuple of str
        Columns besides ``name_index`` and ``step``: numbers of ``moments``, and :data:`~.stages.STAGE`.
    ranges : mapping
        Ranges of ``rank`` and ``stage``.
    first, last : int or None
        Inclusive bounds of the step.
    level : str or None
        Rows may come merged by that level of ``SUMMARY_LEVELS``, under the names that ``merged_names`` gives,
        which are in ``names`` too.
    """

    names: Mapping[str, Sequence[str]]
    columns: tuple[str, ...]
    ranges: Mapping[str, Ranges] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    level: str | None = None

    def first_indices(self) -> dict[str, int]:
        """Return the index of each stat's first name."""
        found, index = {}, 0
        for stat, names in self.names.items():
            found[stat] = index
            index += len(names)
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
"""From the strongest statement to none: a group has the last of its rows'. Unknown words are none."""


# At which stage gradients were measured, as numbers that merge.
def stage_codes(words: pa.DictionaryArray) -> NDArray[np.int8]:
    """Return each row's index in :data:`STAGES`."""
    # Other programs may have packed an unknown stage as null: the last.
    known: list[Any] = [*words.dictionary.to_pylist(), ""]
    known_codes = [STAGES.index(word if word in STAGES else "") for word in known]
    codes: NDArray[np.int8] = np.array(known_codes, np.int8)[words.indices.fill_null(-1).to_numpy()]
    return codes


Progress = Callable[[int, int, str], object]
"""Called with (done, total, what is being done); raise from it to cancel."""
