"""Summaries of segments of ``moments``: rows merged by layer, family or all; see protocol/README.md."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol import (
    MOMENT_COLUMNS,
    STREAMS,
    distinct,
    layers_schemas,
    merge_moments,
    merged_name,
)
from .block_rows import block_rows, series_codes

_LEAST_GAIN, _MOST_CELLS = 2, 1_000_000
"""Merged rows are worth their bytes where there is at most one for so many of the segment. Read at once."""
_PIECE_ROWS = 32_768
_OF_ROWS = ("family", "layer")
"""Levels that are made of rows; the total is made of families."""
_SCHEMAS = layers_schemas()
_Columns = dict[str, NDArray[Any]]
_KEYS = ("name", "gradient_stage", "stage")


class _Series(NamedTuple):
    stat: str
    name: str
    gradient_stage: str
    stage: int


@dataclass
class _Stat:
    rows: int = 0
    names: set[str] = field(default_factory=set)
    steps: list[int] = field(default_factory=list)
    pieces: dict[str, list[_Columns]] = field(default_factory=lambda: defaultdict(list))


class LayerRows:
    """Merges the rows of ``moments`` that pass on their way into a segment, no step in two tables."""

    def __init__(self) -> None:
        self._stats: dict[str, _Stat] = defaultdict(_Stat)
        # Names and stages of gradients, with their places.
        self._names: dict[str | None, int] = {}
        self._stages: dict[str, int] = {}
        self._samples = -1
        self._exact = True

    def through(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the tables, which are sorted by step, as they came."""
        for table in tables:
            whole = table.schema.names == STREAMS["moments"].schema.names
            # What rounded sums may be off by cannot be told of their sums.
            self._exact = self._exact and whole and not table["rounding"].to_numpy().any()
            if self._exact and table.num_rows:
                self._add(table)
            yield table

    def file(self, stamp: list[int]) -> bytes:
        """Return the summary of the segment with that ``segment_stamp``; nothing where it is not worth it."""
        messages, stats = list[bytes](), {}
        levels = [level for level in _OF_ROWS if self._exact and self._fits(level)]
        for stat, of in self._stats.items():
            about: dict[str, Any] = {"rows": of.rows, "steps": of.steps}
            stats[stat] = about
            whole = {level: _together(of.pieces[level]) for level in levels}
            if "family" in whole:
                whole["total"] = self._total(whole["family"])
            merged = whole.copy()
            for level, rows in whole.items():
                kept = block_rows(rows, np.array(of.steps))
                merged |= {f"{level}/{block}": _taken(rows, at) for block, at in kept.items()}
            for level, rows in merged.items():
                made = [_message(rows, schema) for schema in _SCHEMAS]
                about[level] = [[len(each), zlib.crc32(each)] for each in made]
                messages += made
        if not messages:
            return b""
        said = {"segment": stamp, "layers": [*self._names], "stages": [*self._stages]}
        said |= {"samples": self._samples, "stats": stats}
        names = {stat: sorted(of.names) for stat, of in sorted(self._stats.items())}
        texts = {"megalens.layers": said, "megalens.names": names}
        deflated = {key: zlib.compress(json.dumps(text).encode(), 1) for key, text in texts.items()}
        return b"".join([pa.schema([], deflated).serialize(), *messages])

    def _fits(self, level: str) -> bool:
        pieces = [piece for of in self._stats.values() for piece in of.pieces[level]]
        cells = sum(len(piece["step"]) for piece in pieces)
        rows = sum(of.rows for of in self._stats.values())
        # What has no name together cannot be asked for.
        unnamed = self._names.get(None, -1)
        named = not any(unnamed in piece["name"] for piece in pieces)
        return named and cells <= min(_MOST_CELLS, rows // _LEAST_GAIN)

    def _add(self, table: pa.Table) -> None:
        # A column of a table is copied to become an array, that of a batch is not.
        (batch,) = table.combine_chunks().to_batches()
        columns = ("step", "samples", "loss_scale", *MOMENT_COLUMNS)
        rows = {name: batch[name].to_numpy(zero_copy_only=False) for name in columns}
        step = rows["step"]
        series, of = _series(table, int(np.searchsorted(step, step[0], side="right")))
        self._samples = max(self._samples, int(rows["samples"].max()))
        for each, count in zip(series, np.bincount(of).tolist(), strict=True):
            self._stats[each.stat].rows += count
            self._stats[each.stat].names.add(each.name)
        for level in _OF_ROWS:
            groups: dict[tuple[str, int, int, int], int] = {}
            group = np.array([groups.setdefault(self._group(each, level), len(groups)) for each in series])
            for piece in _pieces(step):
                self._merge(level, [*groups], group[of[piece]], _taken(rows, piece))

    def _merge(
        self,
        level: str,
        groups: list[tuple[str, int, int, int]],
        group: NDArray[np.int64],
        rows: _Columns,
    ) -> None:
        merged, group = _cells(rows, group, len(groups))
        stats, *keys = zip(*groups, strict=True)
        for name, key in zip(_KEYS, keys, strict=True):
            merged[name] = np.array(key)[group]
        for stat in dict.fromkeys(stats):
            mine = np.array([each == stat for each in stats])[group]
            some = merged if mine.all() else _taken(merged, mine)
            self._stats[stat].pieces[level].append(some)
            if level == "layer":
                self._stats[stat].steps += np.unique(some["step"]).tolist()

    def _total(self, families: _Columns) -> _Columns:
        """Return the rows of families merged further."""
        rows = {**families}
        known = [merged_name(name or "", "total") for name in self._names]
        totals = [self._names.setdefault(name, len(self._names)) for name in known]
        rows["name"] = np.array(totals)[rows["name"]]
        _, first, group = np.unique(series_codes(rows), return_index=True, return_inverse=True)
        merged, of = _cells(rows, group, len(first))
        return merged | {name: rows[name][first][of] for name in _KEYS}

    def _group(self, series: _Series, level: str) -> tuple[str, int, int, int]:
        name = self._names.setdefault(merged_name(series.name, level), len(self._names))
        stage = self._stages.setdefault(series.gradient_stage, len(self._stages))
        return series.stat, name, stage, series.stage


def _series(table: pa.Table, first: int) -> tuple[list[_Series], NDArray[np.int64]]:
    """Return what rows are of, and which of it each row is of; ``first`` is how many the first step has."""
    columns, rows = table.select(["stat", "name", "gradient_stage", "stage"]), table.num_rows
    # Most steps have the rows of the first one.
    if columns.slice(first).equals(columns.slice(0, rows - first)):
        columns = columns.slice(0, first)
    texts = [column.combine_chunks().dictionary_encode() for column in columns.columns[:3]]
    stage = columns["stage"].to_numpy()
    low, sizes = int(stage.min()), [len(column.dictionary) for column in texts]
    sizes.append(int(stage.max()) - low + 1)
    code = np.zeros(len(stage), np.int64)
    for column, size in zip([*(each.indices.to_numpy() for each in texts), stage - low], sizes, strict=True):
        code = code * size + column
    found, of = distinct(code, 0, int(np.prod(sizes, dtype=np.float64).clip(max=1 << 62)))
    *words, stages = (places.tolist() for places in np.unravel_index(found, sizes))
    known = [column.dictionary.to_pylist() for column in texts]
    named = [[text[at] for at in places] for text, places in zip(known, words, strict=True)]
    return [_Series(*each) for each in zip(*named, [low + at for at in stages], strict=True)], np.resize(
        of, rows
    )


def _cells(rows: _Columns, group: NDArray[np.int64], groups: int) -> tuple[_Columns, NDArray[np.int64]]:
    """Return rows merged by step and group, in this order, and the group of each of what came of it."""
    step = rows["step"]
    changes = np.append(True, step[1:] != step[:-1])
    steps = step[changes]
    found, number = distinct((changes.cumsum() - 1) * groups + group, 0, len(steps) * groups)
    merged: _Columns = dict(merge_moments(rows, number, len(found)))
    merged["samples"] = np.full(len(found), -1)
    np.maximum.at(merged["samples"], number, rows["samples"])
    merged["loss_scale"] = np.ones(len(found))
    merged["loss_scale"][number[np.isnan(rows["loss_scale"])]] = np.nan
    merged["rounding"] = np.zeros(len(found))
    at, group = np.divmod(found, groups)
    merged["step"] = steps[at]
    return merged, group


def _taken(rows: _Columns, at: slice | NDArray[Any]) -> _Columns:
    return {name: column[at] for name, column in rows.items()}


def _together(pieces: list[_Columns]) -> _Columns:
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _pieces(step: NDArray[np.int64]) -> Iterator[slice]:
    """Yield whole steps in pieces, of which what is computed stays in the processor's caches."""
    begin = 0
    while begin < len(step):
        last = step[min(begin + _PIECE_ROWS, len(step)) - 1]
        end = int(np.searchsorted(step, last, side="right"))
        yield slice(begin, end)
        begin = end


def _message(rows: _Columns, schema: pa.Schema) -> bytes:
    """Return rows as one compressed message, without schema and end."""
    batch = pa.record_batch([pa.array(rows[each.name], each.type) for each in schema], schema)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
        end = sink.tell()
    begin = batch.schema.serialize().size
    message: bytes = sink.getvalue()[begin:end].to_pybytes()
    return message
