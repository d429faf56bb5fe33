"""Rows of ``moments`` in pieces, what is asked of them, and reading them in chunks of complete steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ....protocol import LAST_STEP, MOMENT_STATS, STREAMS, Ranges, stream_schema
from ...recorded_parquet import ParquetStream, opened_parquet

_SCHEMA = stream_schema("moments")
_WORDS = [field.name for field in _SCHEMA if pa.types.is_string(field.type)]


STAGE = "gradient_stage"
"""The column. In a chunk it has the index in :data:`STAGES`."""
STAGES = ("pre_clip", "backward", "pre_step", "backward_scaled", "")
"""From the strongest statement to none: a group has the last of its rows'. Unknown words are none."""

Chunk = dict[str, NDArray[Any]]
"""Columns of rows, ordered by step. All rows of a step are in one chunk, and later chunks have later steps.

``name_index`` (int32) is an index into :attr:`Wanted.names`; ``step`` (int64) and the rest are
as in the stream.
"""

Progress = Callable[[int, int, str], object]
"""Called with (done, total, what is being done); raise from it to cancel."""


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
    levels : tuple of str
        Rows may come merged by one of these of ``SUMMARY_LEVELS``, best the first one that is there, under
        the names that ``merged_names`` gives, which are in ``names`` too.
    left_out : NotShown, optional
        Rows may be left out that no picture shows, and are counted there.
    """

    names: Mapping[str, Sequence[str]]
    columns: tuple[str, ...]
    ranges: Mapping[str, Ranges] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    levels: tuple[str, ...] = ()
    left_out: NotShown | None = None

    def first_indices(self) -> dict[str, int]:
        """Return the index of each stat's first name."""
        found, index = {}, 0
        for stat, names in self.names.items():
            found[stat] = index
            index += len(names)
        return found


class NotShown:
    """What a picture leaves out with stretches of whole blocks of so many steps.

    Parameters
    ----------
    block : int
        Steps of a block, a power of two.
    codes : ndarray
        The group of each name.
    """

    def __init__(self, block: int, codes: NDArray[np.int64]) -> None:
        self.block, self._codes = block, codes
        self.cells = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
        """How many cells of each group were left out."""
        self.steps: list[NDArray[np.int64]] = []

    def add(self, chunk: Chunk, steps: NDArray[np.int64]) -> bool:
        """Count what is left out of rows, all those of the second one of the steps among them; return False
        where several series are in a group, whose extremes are not those of its series.
        """
        step, group = chunk["step"], self._codes[chunk["name_index"]]
        groups = group[step == steps[1]]
        if len(np.unique(groups)) < len(groups):
            return False
        if len(groups):
            inner = group[(step > steps[0]) & (step < steps[-1])]
            kept = np.bincount(inner, minlength=len(self.cells))
            self.cells[groups] += len(steps) - 2 - kept[groups]
            self.steps.append(steps[1:-1])
        return True

    def anew(self, others: Iterable[NotShown] = ()) -> NotShown:
        """Return one like this, which counts what others left out."""
        found = NotShown(self.block, self._codes)
        for other in others:
            found.include(other)
        return found

    def include(self, other: NotShown) -> None:
        """Count what somebody else left out, too."""
        self.cells += other.cells
        self.steps += other.steps


@dataclass(frozen=True)
class Listed:
    """What a piece, or all of them, have of one stat: rows, ascending distinct steps, and names (shared
    between pieces).
    """

    rows: int
    steps: NDArray[np.int64]
    names: tuple[str, ...]

    def between(self, first: int | None, last: int | None) -> NDArray[np.int64]:
        """Return the steps within bounds, which are included."""
        begin = 0 if first is None else np.searchsorted(self.steps, first)
        end = None if last is None else np.searchsorted(self.steps, last, "right")
        return self.steps[begin:end]

    def __reduce__(self) -> tuple[Any, ...]:
        return _brought, (self.rows, self.steps, self.names)


@lru_cache(maxsize=8)
def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


def _brought(rows: int, steps: NDArray[np.int64], names: tuple[str, ...]) -> Listed:
    """Return what came from another process, its names in memory once."""
    return Listed(rows, steps, _once(names))


class Piece:
    """Rows that are stored together and never change.

    Attributes
    ----------
    low, high : int
        First and last step.
    samples : bool
        Whether steps are known as samples too.
    listed : mapping
        What it has, by stat; nothing where none of its rows counts.
    """

    low: int
    high: int
    samples: bool
    listed: Mapping[str, Listed]

    def read(self, reading: PieceReading) -> Chunk:
        """Return the wanted rows, ordered by step."""
        raise NotImplementedError

    def parts(self, wanted: Wanted) -> Sequence[Piece]:
        """Return what is read of it for that."""
        return [self]


class PieceReading:
    """One question to pieces: what is wanted, and the file that was opened last."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.alone = False
        """Whether no other piece has a step between the first and the last one of the piece that is read."""
        self._of = [
            (stat, first, pa.array(wanted.names[stat], pa.utf8()))
            for stat, first in wanted.first_indices().items()
        ]
        self._dictionary: pa.Array | None = None
        self._tables: dict[str, NDArray[np.int32]] = {}
        self._path: Path | None = None
        self._files = ExitStack()

    def file(self, path: Path) -> ParquetStream:
        """Return a file, open until another one is asked for: the next row group is mostly of the same.

        Raises ``OSError``, ``ValueError``, ``pyarrow.ArrowException`` or ``ClientError`` when it is gone or
        damaged.
        """
        if path != self._path:
            self.close()
            self._file = self._files.enter_context(opened_parquet(path, _WORDS))
            self._path = path
        return self._file

    def close(self) -> None:
        self._files.close()
        self._path = None

    def columns(self) -> list[str]:
        wanted = self.wanted
        return list(dict.fromkeys(["step", "stat", "name", *wanted.columns, *wanted.ranges]))

    def chunk(self, table: pa.Table) -> Chunk:
        """Return the wanted rows of a table, ordered by step."""
        wanted, step = self.wanted, _numbers(table, "step")
        index = self.name_indices(_coded(table["stat"]), _coded(table["name"]))
        keep = index >= 0
        if wanted.first is not None:
            keep &= step >= wanted.first
        if wanted.last is not None:
            keep &= step <= wanted.last
        for name, ranges in wanted.ranges.items():
            column = _numbers(table, name)
            keep &= np.any([(column >= low) & (column <= high) for low, high in ranges], axis=0)
        columns = {
            name: stage_codes(_coded(table[name])) if name == STAGE else _numbers(table, name)
            for name in wanted.columns
        }
        chunk: Chunk = {"name_index": index, "step": step, **columns}
        if not keep.all():
            chunk = {name: column[keep] for name, column in chunk.items()}
        return by_step(chunk)

    def name_indices(self, stats: pa.DictionaryArray, names: pa.DictionaryArray) -> NDArray[np.int32]:
        """Return each row's index in :attr:`Wanted.names`, or -1; looked up once a dictionary."""
        if self._dictionary is None or not names.dictionary.equals(self._dictionary):
            self._dictionary = names.dictionary
            self._tables = {stat: self._table(first, wanted) for stat, first, wanted in self._of}
        name, known = _codes(names), stats.dictionary.to_pylist()
        if len(known) == 1 and not stats.null_count:
            table = self._tables.get(known[0])
            return np.full(len(name), -1, np.int32) if table is None else table[name]
        stat, found = _codes(stats), np.full(len(name), -1, np.int32)
        for code, text in enumerate(known):
            if text in self._tables:
                of = stat == code
                found[of] = self._tables[text][name[of]]
        return found

    def _table(self, first: int, wanted: pa.Array) -> NDArray[np.int32]:
        assert self._dictionary is not None
        found = pc.fill_null(pc.index_in(self._dictionary.cast(pa.utf8()), value_set=wanted), -1 - first)
        # The last index is that of a row without a name, whose code is -1.
        return np.append(found.to_numpy() + first, -1).astype(np.int32)


class MemoryPiece(Piece):
    """Rows in memory, their texts as dictionaries: at least one row, with every column of the stream."""

    def __init__(self, table: pa.Table) -> None:
        columns = {
            name: _coded(table[name]) if name in _WORDS else table[name].combine_chunks()
            for name in _SCHEMA.names
        }
        self.table = pa.table(columns)
        self.low, self.high, self.listed = listed_of(self.table)
        self.samples = pc.max(self.table["samples"]).as_py() >= 0

    def read(self, reading: PieceReading) -> Chunk:
        return reading.chunk(self.table)


def in_question(pieces: Iterable[Piece], wanted: Wanted) -> list[Piece]:
    """Return the pieces that may have wanted rows, in the order of their first steps."""
    first = 0 if wanted.first is None else wanted.first
    last = LAST_STEP if wanted.last is None else wanted.last
    found = (piece for piece in pieces if piece.low <= last and piece.high >= first)
    asked = (piece for piece in found if not wanted.names.keys().isdisjoint(piece.listed))
    return sorted(asked, key=lambda piece: piece.low)


def complete_steps(
    pieces: Sequence[Piece], wanted: Wanted, others: tuple[int, int] = (-1, LAST_STEP + 1)
) -> Iterator[Chunk]:
    """Read the wanted rows in chunks of complete steps, later steps in later chunks.

    A cell is merged once, from all rows of its step. Pieces may overlap, where ranks send late or another
    program wrote rows in any order; so the rows of a piece wait until no unread piece begins at or before
    their step. ``others`` is up to where and from where on somebody else reads rows of the same question.
    """
    parts = (part for piece in in_question(pieces, wanted) for part in piece.parts(wanted))
    taken = in_question(parts, wanted)
    reading = PieceReading(wanted)
    waiting: list[Chunk] = []
    highest, until = others
    try:
        for at, piece in enumerate(taken):
            # Pieces are read in the order of their first steps: nothing before the next one's can follow.
            bound = taken[at + 1].low if at + 1 < len(taken) else LAST_STEP + 1
            reading.alone = highest <= piece.low and piece.high <= min(bound, until)
            highest = max(highest, piece.high)
            chunk = piece.read(reading)
            if waiting:
                # Chunks that continue waiting steps are joined with them; the rest need not be copied.
                seam = min(bound, 1 + max(int(one["step"][-1]) for one in waiting))
                complete, waiting = _split([*waiting, chunk], seam)
                yield from complete and [by_step(joined(complete))]
                if seam == bound:
                    continue
                chunk = waiting.pop() if waiting else _part(chunk, 0, 0)
            complete, waiting = _split([chunk], bound)
            yield from complete
    finally:
        reading.close()


def _split(chunks: list[Chunk], bound: int) -> tuple[list[Chunk], list[Chunk]]:
    """Return the parts of ordered chunks before and from a step; none without rows."""
    cuts = [int(np.searchsorted(chunk["step"], bound)) for chunk in chunks]
    before = [_part(chunk, 0, cut) for chunk, cut in zip(chunks, cuts, strict=True) if cut]
    after = [
        _part(chunk, cut, len(chunk["step"]))
        for chunk, cut in zip(chunks, cuts, strict=True)
        if cut < len(chunk["step"])
    ]
    return before, after


def _part(chunk: Chunk, begin: int, end: int) -> Chunk:
    return {name: column[begin:end] for name, column in chunk.items()}


def joined(chunks: list[Chunk]) -> Chunk:
    return (
        chunks[0]
        if len(chunks) == 1
        else {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    )


def by_step(chunk: Chunk) -> Chunk:
    step = chunk["step"]
    if not (step[1:] < step[:-1]).any():
        return chunk
    order = np.argsort(step, kind="stable")
    return {name: column[order] for name, column in chunk.items()}


# The last piece's names of each stat, mostly shared by the next: a million more texts would take memory.
_last_names: dict[str, tuple[pa.Array, NDArray[np.bool_], tuple[str, ...]]] = {}


def listed_of(table: pa.Table) -> tuple[int, int, dict[str, Listed]]:
    """Return first and last step of the rows, and what there is of each stat."""
    step, stats, names = _numbers(table, "step"), _coded(table["stat"]), _coded(table["name"])
    code, name, known = _codes(stats), _codes(names), stats.dictionary.to_pylist()
    # Most pieces are of one stat, and all their rows have a name.
    counts = name >= 0 if names.null_count else None
    if counts is None and (len(known) > 1 or stats.null_count):
        counts = np.ones(len(step), bool)
    found: dict[str, Listed] = {}
    for at, stat in enumerate(known):
        of = slice(None) if counts is None else (code == at) & counts
        steps, used = step[of], np.zeros(len(names.dictionary), bool)
        if stat in MOMENT_STATS and len(steps):
            used[name[of]] = True
            found[stat] = Listed(len(steps), different(steps), _names(stat, names.dictionary, used))
    low = min((int(one.steps[0]) for one in found.values()), default=LAST_STEP + 1)
    high = max((int(one.steps[-1]) for one in found.values()), default=-1)
    return low, high, found


def different(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct steps, ascending. They come in ascending runs, which such a sort merges."""
    if (steps[1:] < steps[:-1]).any():
        steps = np.sort(steps, kind="stable")
    found: NDArray[np.int64] = steps[np.diff(steps, prepend=steps[:1] - 1) != 0]
    return found


def _names(stat: str, dictionary: pa.Array, used: NDArray[np.bool_]) -> tuple[str, ...]:
    before, flags, names = _last_names.get(stat, (None, used, ()))
    if before is None or not np.array_equal(flags, used) or not before.equals(dictionary):
        names = tuple(dictionary.filter(pa.array(used)).to_pylist())
        _last_names[stat] = (dictionary, used, names)
    return names


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a column of texts as one dictionary array."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if column.num_chunks > 1:
        column = column.unify_dictionaries()
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


# At which stage gradients were measured, as numbers that merge.
def stage_codes(words: pa.DictionaryArray) -> NDArray[np.int8]:
    """Return each row's index in :data:`STAGES`."""
    # Other programs may have packed an unknown stage as null: the last.
    known: list[Any] = [*words.dictionary.to_pylist(), ""]
    known_codes = [STAGES.index(word if word in STAGES else "") for word in known]
    codes: NDArray[np.int8] = np.array(known_codes, np.int8)[words.indices.fill_null(-1).to_numpy()]
    return codes


def _codes(column: pa.DictionaryArray) -> NDArray[Any]:
    """Return dictionary indices; -1 where a text is missing."""
    indices = column.indices
    codes: NDArray[Any] = (pc.fill_null(indices, -1) if indices.null_count else indices).to_numpy()
    return codes


def _numbers(table: pa.Table, name: str) -> NDArray[Any]:
    """Return a column of numbers in the stream's type; what other programs left out is NaN or -1."""
    kind = _SCHEMA.field(name).type
    is_integer = pa.types.is_integer(kind)
    if name not in table.column_names:
        return np.full(table.num_rows, STREAMS["moments"].absent[name], kind.to_pandas_dtype())
    column = table[name]
    if column.type != kind:
        column = column.cast(kind, safe=False)
    if is_integer and column.null_count:
        column = column.fill_null(-1)
    numbers: NDArray[Any] = column.to_numpy()
    return numbers
