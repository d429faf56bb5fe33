"""Chunks of rows of a packed recording, read without a join: its rows lie in the order of their steps, and its names as a dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ....protocol import MomentIndex, stream_schema
from ...recorded_parquet import ParquetStream, opened_parquet
from .moment_rows import STAGE, Chunk, Wanted, stage_codes

__all__ = ["PackedChunks", "chosen_rows", "places_of"]

# The last step of a chunk is joined with its rest in the next chunk: fewer chunks mean fewer copies.
_CHUNK_ROWS = 200_000
_WORDS = ("stat", "name")


class PackedChunks:
    """A Parquet file of the stream ``moments``.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with opened_parquet(path) as file:
            self._groups = _steps_of_groups(file)
            self._same = MomentIndex.read_same(file.metadata.metadata)

    @property
    def ordered(self) -> bool:
        """Whether every row group begins at or after the step at which the one before it ends, and the columns are the stream's: only then can it be read in chunks."""
        return self._groups is not None

    def read(self, wanted: Wanted) -> Iterator[Chunk]:
        """Read the rows that are wanted.

        Raises
        ------
        OSError, ValueError, pyarrow.ArrowException, ClientError
            When the file is gone or damaged.
        """
        # A cell is merged once, from all rows of its step. The last step of a chunk may continue in the next one or in the next row group, so its rows wait here until a later step appears.
        waiting: list[Chunk] = []
        with (
            opened_parquet(self._path) as pages,
            pq.ParquetFile(self._path, read_dictionary=[*_WORDS, STAGE], metadata=pages.metadata) as file,
        ):
            places = _Places(wanted)
            same = self._same_of(wanted)
            read = ["step", *_WORDS, *wanted.columns, *wanted.ranges]
            for at, (first, last) in enumerate(self._groups or ()):
                if (wanted.last is not None and first > wanted.last) or (
                    wanted.first is not None and last < wanted.first
                ):
                    continue
                pages.check_group(at, [name for name in dict.fromkeys(read) if name not in same])
                for chunk in _in_order(file, at, places, wanted, same):
                    step = chunk["step"]
                    if waiting:
                        # What continues the waiting step goes to it; the rest begins a new one.
                        begin = int(np.searchsorted(step, waiting[0]["step"][0], side="right"))
                        waiting.append(_slice(chunk, 0, begin))
                        if begin == len(step):
                            continue
                        yield _joined(waiting)
                    else:
                        begin = 0
                    end = int(np.searchsorted(step, step[-1]))
                    if begin < end:
                        yield _slice(chunk, begin, end)
                    waiting = [_slice(chunk, end, len(step))]
        if waiting:
            yield _joined(waiting)

    def _same_of(self, wanted: Wanted) -> dict[str, float]:
        """Return the columns that have one value in all rows that are wanted."""
        first, *others = [self._same.get(stat, {}) for stat in wanted.names] or [{}]
        return {
            name: value
            for name, value in first.items()
            if name in wanted.columns and all(other.get(name) == value for other in others)
        }


def _in_order(file: Any, at: int, places: _Places, wanted: Wanted, same: dict[str, float]) -> Iterator[Chunk]:
    """Read a row group in the order of its steps. If its rows are in that order, they are decoded batch by batch, so that few are in memory at once."""
    # Stat and name are read in one go: every read builds the dictionary of tens of thousands of names again.
    words = file.read_row_group(at, columns=["step", *_WORDS])
    step = words["step"].to_numpy()
    place = np.concatenate([places.find(batch["stat"], batch["name"]) for batch in words.to_batches()])
    numbers = [name for name in dict.fromkeys([*wanted.columns, *wanted.ranges]) if name not in same]
    done = 0
    ordered = not (step[1:] < step[:-1]).any()
    chunks = []
    for batch in file.iter_batches(_CHUNK_ROWS, row_groups=[at], columns=numbers):
        rows = slice(done, done + batch.num_rows)
        columns = {
            name: stage_codes(batch[name]) if name == STAGE else _numbers(batch[name])
            for name in batch.schema.names
        }
        columns |= {name: np.broadcast_to(value, batch.num_rows) for name, value in same.items()}
        chunk = chosen_rows(columns, place[rows], step[rows], wanted)
        done += batch.num_rows
        if not len(chunk["step"]):
            continue
        if ordered:
            yield chunk
        else:
            chunks.append(chunk)
    if chunks:
        whole = _joined(chunks)
        order = np.argsort(whole["step"], kind="stable")
        yield {name: column[order] for name, column in whole.items()}


def _slice(chunk: Chunk, begin: int, end: int) -> Chunk:
    return {name: column[begin:end] for name, column in chunk.items()}


def _joined(chunks: list[Chunk]) -> Chunk:
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def places_of(wanted: Wanted) -> _Places:
    """Return what finds the place of each row."""
    return _Places(wanted)


class _Places:
    """Places of names, looked up once for each dictionary and not for each row."""

    def __init__(self, wanted: Wanted) -> None:
        self._of = [
            (stat, first, pa.array(wanted.names[stat], pa.utf8()))
            for stat, first in wanted.first_places().items()
        ]
        self._dictionary: pa.Array | None = None
        self._tables: dict[str, NDArray[np.int32]] = {}

    def find(self, stats: pa.DictionaryArray, names: pa.DictionaryArray) -> NDArray[np.int32]:
        """Return the place of each row; -1 where it is not wanted."""
        if self._dictionary is None or not names.dictionary.equals(self._dictionary):
            self._dictionary = names.dictionary
            self._tables = {stat: self._table(first, wanted) for stat, first, wanted in self._of}
        name, stat = names.indices.to_numpy(), stats.indices.to_numpy()
        known = stats.dictionary.to_pylist()
        if len(known) == 1:
            table = self._tables.get(known[0])
            return np.full(len(name), -1, np.int32) if table is None else table[name]
        found = np.full(len(name), -1, np.int32)
        for code, text in enumerate(known):
            if text in self._tables:
                of = stat == code
                found[of] = self._tables[text][name[of]]
        return found

    def _table(self, first: int, wanted: pa.Array) -> NDArray[np.int32]:
        found = pc.index_in(self._dictionary, value_set=wanted).to_numpy(zero_copy_only=False)
        return np.where(np.isnan(found), -1, found + first).astype(np.int32)


def chosen_rows(
    columns: Mapping[str, NDArray[Any]], place: NDArray[np.int32], step: NDArray[np.int64], wanted: Wanted
) -> Chunk:
    """Return the rows that are wanted, of the places and steps that they have."""
    keep = place >= 0
    if wanted.first is not None:
        keep &= step >= wanted.first
    if wanted.last is not None:
        keep &= step <= wanted.last
    for name, ranges in wanted.ranges.items():
        keep &= np.any([(columns[name] >= low) & (columns[name] <= high) for low, high in ranges], axis=0)
    chunk: Chunk = {"place": place, "step": step, **{name: columns[name] for name in wanted.columns}}
    return chunk if keep.all() else {name: column[keep] for name, column in chunk.items()}


def _numbers(column: pa.Array) -> NDArray[Any]:
    # Other programs may have packed what is not known as null.
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers


def _steps_of_groups(file: ParquetStream) -> list[tuple[int, int]] | None:
    """Return the first and last step of each row group; None where they are not in order."""
    schema = file.schema
    if any(
        field.name not in schema.names or schema.field(field.name).type != field.type
        for field in stream_schema("moments")
    ):
        return None
    found: list[tuple[int, int]] = []
    for at in range(len(file.groups)):
        step = file.chunk("step", at)
        if step.low is None or step.high is None or step.nulls:
            return None
        if found and step.low < found[-1][1]:
            return None
        found.append((step.low, step.high))
    return found
