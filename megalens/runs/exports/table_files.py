"""Streams as files of tables: Parquet and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from .export import Export, Format

_GROUP_BYTES, _GROUP_ROWS = 16 * 2**20, 1_000_000
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


PARQUET = Format(_write_parquet)
CSV = Format(_write_csv)
