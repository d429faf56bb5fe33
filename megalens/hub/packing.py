"""Turning a finished ``.arrows`` file into Parquet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..protocol import MOMENT_INDEX, MOMENT_SAME, STREAMS, MomentIndex, Stream, index_path

__all__ = ["pack_stream", "sync_folder"]

_DICTIONARY_BYTES = 16 * 1024 * 1024
# What else a reader wants to know of a stream before it reads its rows: the stream's own business.
_INDEXES = {"moments": MomentIndex}


def pack_stream(source: Path, stream: str | Stream) -> Path:
    """Write the rows of ``source`` to Parquet beside it, and remove ``source`` once they are safely on disk.

    Parameters
    ----------
    source : Path
        The ``.arrows`` file. One that was cut short is packed up to its last whole message.
    stream : str or Stream
        Its stream, one of ``streams.json`` by its name.

    Returns
    -------
    Path
        The Parquet file.

    Raises
    ------
    OSError
        When the disk is full or fails. ``source`` is then as it was.
    """
    declared = STREAMS.named(stream) if isinstance(stream, str) else stream
    target = source.with_suffix(".parquet")
    partial = source.with_suffix(".parquet.partial")
    try:
        with pa.OSFile(str(source), "rb") as file:
            _copy_rows(file, partial, declared)
        descriptor = os.open(partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, target)
        sync_folder(target.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    source.unlink()
    index_path(source).unlink(missing_ok=True)
    return target


def sync_folder(folder: Path) -> None:
    """Make the folder's own entries safe on disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_rows(file: pa.NativeFile, partial: Path, stream: Stream) -> None:
    # Only the end of a recording needs it, and the start should not wait for it.
    import pyarrow.parquet as pq

    policy = stream.policy
    index = _INDEXES[stream.name]() if stream.name in _INDEXES else None
    schema = stream.schema
    if not policy.null_marks:
        # No row has nulls, and marks of which there are none would cost as much to read as the numbers.
        schema = pa.schema([field.with_nullable(False) for field in schema])
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    with (
        pa.ipc.open_stream(file) as reader,
        pq.ParquetWriter(
            partial,
            schema,
            **_codecs(policy.fast, schema.names),
            use_dictionary=True if policy.dictionary is None else list(policy.dictionary),
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
        ) as writer,
    ):

        def flush() -> None:
            nonlocal rows, size
            if batches:
                writer.write_table(
                    pa.Table.from_batches(batches).cast(schema), row_group_size=policy.group_rows
                )
            batches.clear()
            rows = size = 0

        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            except (pa.ArrowInvalid, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                break
            batches.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if index is not None:
                index.add(batch)
            if rows >= policy.group_rows or size >= policy.group_bytes:
                flush()
        flush()
        if index is not None:
            writer.add_key_value_metadata({MOMENT_INDEX: index.text(), MOMENT_SAME: index.same_text()})


def _codecs(fast: tuple[str, ...], columns: list[str]) -> dict[str, Any]:
    if not fast:
        return {"compression": "zstd", "compression_level": 3}
    return {
        # Of numbers of which hardly any comes twice there is nothing to compress but repetitions, which the fastest codec finds as well and undoes at no cost.
        "compression": {name: "lz4" if name in fast else "zstd" for name in columns},
        "compression_level": {name: 3 for name in columns if name not in fast},
    }
