"""Summaries of segments of ``moments``: rows merged by layer and step, see protocol/README.md."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol import MOMENT_COLUMNS, STREAMS, layers_schema, merge_moments, merged_name

_LEAST_GAIN, _MOST_CELLS = 2, 1_000_000
"""A summary is worth its bytes where it has at most one row for so many of the segment. Read at once."""


@dataclass
class _Stat:
    rows: int = 0
    names: set[str] = field(default_factory=set)
    batches: list[pa.RecordBatch] = field(default_factory=list)


class LayerRows:
    """Merges the rows of ``moments`` that pass on their way into a segment, no step in two tables."""

    def __init__(self) -> None:
        self._stats: dict[str, _Stat] = {}
        self._layers: dict[str, int] = {}
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
        cells = sum(batch.num_rows for stat in self._stats.values() for batch in stat.batches)
        most = min(_MOST_CELLS, sum(stat.rows for stat in self._stats.values()) // _LEAST_GAIN)
        if not self._exact or cells > most:
            return b""
        schema, messages, stats = layers_schema(), list[bytes](), {}
        for name, stat in self._stats.items():
            batch = pa.concat_batches(stat.batches)
            messages.append(_message(batch))
            stats[name] = {
                "rows": stat.rows,
                "steps": np.unique(batch["step"].to_numpy()).tolist(),
                "bytes": len(messages[-1]),
                "crc": zlib.crc32(messages[-1]),
            }
        about = {"segment": stamp, "layers": [*self._layers], "stages": [*self._stages]}
        about |= {"samples": self._samples, "stats": stats}
        names = {name: sorted(stat.names) for name, stat in sorted(self._stats.items())}
        said = {"megalens.layers": about, "megalens.names": names}
        deflated = {name: zlib.compress(json.dumps(each).encode()) for name, each in said.items()}
        return b"".join([schema.with_metadata(deflated).serialize(), *messages])

    def _add(self, table: pa.Table) -> None:
        keys, key = self._keys(table)
        step = table["step"].to_numpy()
        changes = np.append(True, step[1:] != step[:-1])
        found, number = np.unique((changes.cumsum() - 1) * len(keys) + key, return_inverse=True)
        rows: dict[str, NDArray[Any]]
        rows = {name: table[name].to_numpy() for name in ("samples", "loss_scale", *MOMENT_COLUMNS)}
        merged: dict[str, NDArray[Any]] = dict(merge_moments(rows, number, len(found)))
        self._samples = max(self._samples, int(rows["samples"].max()))
        at, key = np.divmod(found, len(keys))
        merged["step"] = step[changes][at]
        merged["samples"] = np.full(len(found), -1)
        np.maximum.at(merged["samples"], number, rows["samples"])
        merged["loss_scale"] = np.ones(len(found))
        merged["loss_scale"][number[np.isnan(rows["loss_scale"])]] = np.nan
        merged["rounding"] = np.zeros(len(found))
        stats, layers, stages = zip(*keys, strict=True)
        merged["name"], merged["gradient_stage"] = np.array(layers)[key], np.array(stages)[key]
        schema = layers_schema()
        for stat in dict.fromkeys(stats):
            of = np.array([each == stat for each in stats])[key]
            columns = [pa.array(merged[each.name][of], each.type) for each in schema]
            self._stats[stat].batches.append(pa.record_batch(columns, schema))

    def _keys(self, table: pa.Table) -> tuple[list[tuple[str, int, int]], NDArray[np.int64]]:
        """Return stat, layer and stage of each merged row of a step, and which of them each row is of."""
        columns = [
            table[name].combine_chunks().dictionary_encode() for name in ("stat", "name", "gradient_stage")
        ]
        known = [column.dictionary.to_pylist() for column in columns]
        code = np.zeros(table.num_rows, np.int64)
        for column, texts in zip(columns, known, strict=True):
            code = code * len(texts) + column.indices.to_numpy()
        found, which, counts = np.unique(code, return_inverse=True, return_counts=True)
        places = np.unravel_index(found, [len(texts) for texts in known])
        keys: dict[tuple[str, int, int], int] = {}
        of = np.empty(len(found), np.int64)
        for at, (stat, name, stage, rows) in enumerate(zip(*places, counts.tolist(), strict=True)):
            what, tensor, word = known[0][stat], known[1][name], known[2][stage]
            about = self._stats.setdefault(what, _Stat())
            about.names.add(tensor)
            about.rows += rows
            layer = self._layers.setdefault(merged_name(tensor), len(self._layers))
            key = what, layer, self._stages.setdefault(word, len(self._stages))
            of[at] = keys.setdefault(key, len(keys))
        return list(keys), of[which]


def _message(batch: pa.RecordBatch) -> bytes:
    """Return a batch as one compressed message, without schema and end."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
        end = sink.tell()
    begin = batch.schema.serialize().size
    message: bytes = sink.getvalue()[begin:end].to_pybytes()
    return message
