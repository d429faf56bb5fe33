"""Chunks of rows of a packed recording, read without a join: its rows lie in the order of their steps, and its names as a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ...protocol import stream_schema
from .wanted import Chunk, Wanted

__all__ = ["PackedChunks"]

_CHUNK_ROWS = 400_000
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
        with pq.ParquetFile(path) as file:
            self._groups = _steps_of_groups(file)

    @property
    def ordered(self) -> bool:
        """Whether every row group begins at or after the step at which the one before it ends, and the columns are the stream's: only then can it be read in chunks."""
        return self._groups is not None

    def read(self, wanted: Wanted) -> Iterator[Chunk]:
        """Read the rows that are wanted.

        Raises
        ------
        OSError, pyarrow.ArrowException
            When the file is gone or damaged.
        """
        columns = ["step", *_WORDS, *wanted.columns, *wanted.ranges]
        held: Chunk | None = None
        with pq.ParquetFile(self._path, read_dictionary=list(_WORDS)) as file:
            places = _Places(wanted)
            for groups, after in self._stretches(wanted):
                table = file.read_row_groups(groups, columns=list(dict.fromkeys(columns)))
                chunk = _chosen(table, places, wanted)
                if held is not None:
                    chunk = {name: np.concatenate([held[name], column]) for name, column in chunk.items()}
                # Rows of a step that goes on in the next stretch wait for it.
                waits = chunk["step"] >= after
                held = {name: column[waits] for name, column in chunk.items()} if waits.any() else None
                if held is not None:
                    chunk = {name: column[~waits] for name, column in chunk.items()}
                if len(chunk["step"]):
                    yield chunk

    def _stretches(self, wanted: Wanted) -> Iterator[tuple[list[int], int]]:
        """Yield row groups that are read together, and the first step behind them."""
        groups = [
            (at, first, rows)
            for at, (first, last, rows) in enumerate(self._groups or ())
            if (wanted.last is None or first <= wanted.last)
            and (wanted.first is None or last >= wanted.first)
        ]
        taken: list[int] = []
        size = 0
        for place, (at, _, rows) in enumerate(groups):
            taken.append(at)
            size += rows
            last = place + 1 == len(groups)
            if size >= _CHUNK_ROWS or last:
                yield taken, (1 << 63) - 1 if last else groups[place + 1][1]
                taken, size = [], 0


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


def _chosen(table: pa.Table, places: _Places, wanted: Wanted) -> Chunk:
    # One array of each word for a row group, or for a part of one: both columns are cut alike.
    words = table.select(list(_WORDS)).to_batches()
    place = np.concatenate([places.find(batch.column(0), batch.column(1)) for batch in words])
    step = table["step"].to_numpy()
    keep = place >= 0
    if wanted.first is not None:
        keep &= step >= wanted.first
    if wanted.last is not None:
        keep &= step <= wanted.last
    for name, ranges in wanted.ranges.items():
        column = table[name].to_numpy()
        keep &= np.any([(column >= low) & (column <= high) for low, high in ranges], axis=0)
    chunk = {"place": place, "step": step} | {name: table[name].to_numpy() for name in wanted.columns}
    return chunk if keep.all() else {name: column[keep] for name, column in chunk.items()}


def _steps_of_groups(file: Any) -> list[tuple[int, int, int]] | None:
    """Return the first and last step of each row group, and its rows; None where they are not in order."""
    schema, metadata = file.schema_arrow, file.metadata
    if any(
        field.name not in schema.names or schema.field(field.name).type != field.type
        for field in stream_schema("moments")
    ):
        return None
    place = next(at for at in range(metadata.num_columns) if metadata.schema.column(at).path == "step")
    found: list[tuple[int, int, int]] = []
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        known = group.column(place).statistics
        if known is None or not known.has_min_max or known.null_count:
            return None
        if found and known.min < found[-1][1]:
            return None
        found.append((known.min, known.max, group.num_rows))
    return found
