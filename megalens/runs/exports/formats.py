"""Streams as files of tables, Parquet and CSV, and traced tensors as arrays in files of safetensors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ..errors import ClientError
from .export import Export, Format

_FILE_BYTES, _FILE_TENSORS = 64 * 2**20, 100_000
_GROUP_BYTES, _GROUP_ROWS = 16 * 2**20, 1_000_000
_KEY = ("step", "flag", "part", "layer", "rank")
_ABOUT = (*_KEY, "compressor", "pass", "phase", "micro_batch", "call")
# As Python's json writes and reads them.
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _write_parquet(export: Export) -> None:
    for stream in export.streams:
        schema = export.schema(stream)
        with pq.ParquetWriter(
            export.folder / f"{stream}.parquet",
            schema,
            compression="zstd",
            use_dictionary=[field.name for field in schema if pa.types.is_string(field.type)],
            sorting_columns=[pq.SortingColumn(schema.get_field_index("step"))],
        ) as writer:
            for table in _groups(export.batches(stream), schema):
                writer.write_table(table)


def _groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield rows in groups worth a Parquet row group: those of a tail come a step at a time."""
    pending: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        pending.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= _GROUP_BYTES or rows >= _GROUP_ROWS:
            yield pa.Table.from_batches(pending, schema)
            pending, size, rows = [], 0, 0
    if pending:
        yield pa.Table.from_batches(pending, schema)


def _write_csv(export: Export) -> None:
    for stream in export.streams:
        schema = pa.schema([(field.name, _flat_type(field.type)) for field in export.schema(stream)])
        with pa_csv.CSVWriter(export.folder / f"{stream}.csv", schema) as writer:
            for batch in export.batches(stream):
                columns = [_json(each) if pa.types.is_list(each.type) else each for each in batch.columns]
                writer.write_batch(pa.record_batch(columns, schema=schema))


def _flat_type(kind: pa.DataType) -> pa.DataType:
    return pa.large_utf8() if pa.types.is_list(kind) else kind


def _json(lists: pa.ListArray) -> pa.Array:
    if not pa.types.is_primitive(lists.type.value_type):
        return pa.array([json.dumps(each) for each in lists.to_pylist()], pa.large_utf8())
    texts = lists.flatten().cast(pa.large_utf8())
    for word, written in _WORDS.items():
        texts = pc.if_else(pc.equal(texts, word), written, texts)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = pa.array([0, *lengths.cumsum().tolist()], pa.int64())
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, texts), pa.scalar(",", pa.large_utf8()))
    ends = [pa.scalar(end, pa.large_utf8()) for end in ("[", "]", "")]
    return pc.binary_join_element_wise(ends[0], joined, *ends[1:])


def _write_tensors(export: Export) -> None:
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ClientError(
            "Files of safetensors need safetensors: pip install 'megalens[tracer]'.", code="not-installed"
        ) from error
    arrays: dict[str, Any] = {}
    about: dict[str, str] = {}
    size = number = 0
    # A step is complete before the next one comes.
    seen: Counter[str] = Counter()
    step = None

    def save() -> None:
        nonlocal size, number
        number += 1
        save_file(arrays, export.folder / f"tensors-{number:05d}.safetensors", {"run": export.run, **about})
        arrays.clear()
        about.clear()
        size = 0

    for batch in export.batches("tensors"):
        values = batch["values"]
        rows = batch.select([*_ABOUT, "shape"]).to_pylist()
        for at, row in enumerate(rows):
            if row["step"] != step:
                step = row["step"]
                seen.clear()
            key = "/".join(str(row[name]) or "-" for name in _KEY)
            seen[key] += 1
            key += f"#{seen[key]}" if seen[key] > 1 else ""
            # A copy: a slice would retain the complete batch.
            arrays[key] = np.array(values[at].values.to_numpy(zero_copy_only=False)).reshape(row["shape"])
            about[key] = json.dumps({name: row[name] for name in _ABOUT})
            size += arrays[key].nbytes
            if size >= _FILE_BYTES or len(arrays) >= _FILE_TENSORS:
                save()
    if arrays:
        save()


PARQUET = Format(_write_parquet)
CSV = Format(_write_csv)
SAFETENSORS = Format(_write_tensors, ("tensors",))
