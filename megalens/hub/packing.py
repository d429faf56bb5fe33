"""Turning a finished ``.arrows`` file into Parquet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..protocol import MOMENT_INDEX, MOMENT_SAME, MomentIndex, stream_schema

__all__ = ["pack_stream", "sync_folder"]

# A picture reads a few flags and layers of some steps: small groups let a reader skip the others.
# A grouping reads all rows of moments, and of each group its thousands of names once.
_GROUP_ROWS = {"tensors": 2048, "moments": 524_288}
_GROUP_ROWS_ELSE = 131072
_GROUP_BYTES = {"moments": 64 * 1024 * 1024}
_GROUP_BYTES_ELSE = 16 * 1024 * 1024
# Where nearly every number is another one, a dictionary is built in vain; names are many but each comes again at every step.
_DICTIONARIES: dict[str, list[str]] = {
    "moments": [
        "step",
        "samples",
        "stat",
        "name",
        "rank",
        "stage",
        "count",
        "rounding",
        "gradient_stage",
        "loss_scale",
    ]
}
_DICTIONARY_BYTES = 16 * 1024 * 1024
# Of numbers of which hardly any comes twice there is nothing to compress but repetitions, which the fastest codec finds as well and undoes at no cost.
_FAST = {"moments": ("mean", "m2", "m3", "m4", "min", "max")}


def pack_stream(source: Path, stream: str) -> Path:
    """Write the rows of ``source`` to Parquet beside it, and remove ``source`` once they are safely on disk.

    Parameters
    ----------
    source : Path
        The ``.arrows`` file. One that was cut short is packed up to its last whole message.
    stream : str
        Name of its stream.

    Returns
    -------
    Path
        The Parquet file.

    Raises
    ------
    OSError
        When the disk is full or fails. ``source`` is then as it was.
    """
    target = source.with_suffix(".parquet")
    partial = source.with_suffix(".parquet.partial")
    try:
        with pa.OSFile(str(source), "rb") as file:
            _copy_rows(file, partial, stream)
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


def _copy_rows(file: pa.NativeFile, partial: Path, stream: str) -> None:
    # Only the end of a recording needs it, and the start should not wait for it.
    import pyarrow.parquet as pq

    most = _GROUP_ROWS.get(stream, _GROUP_ROWS_ELSE)
    most_bytes = _GROUP_BYTES.get(stream, _GROUP_BYTES_ELSE)
    index = MomentIndex() if stream == "moments" else None
    schema = stream_schema(stream)
    if index is not None:
        # No row has nulls, and marks of which there are none would cost as much to read as the numbers.
        schema = pa.schema([field.with_nullable(False) for field in schema])
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    with (
        pa.ipc.open_stream(file) as reader,
        pq.ParquetWriter(
            partial,
            schema,
            **_codecs(stream, schema.names),
            use_dictionary=_DICTIONARIES.get(stream, True),
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
        ) as writer,
    ):

        def flush() -> None:
            nonlocal rows, size
            if batches:
                writer.write_table(pa.Table.from_batches(batches).cast(schema), row_group_size=most)
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
            if rows >= most or size >= most_bytes:
                flush()
        flush()
        if index is not None:
            writer.add_key_value_metadata({MOMENT_INDEX: index.text(), MOMENT_SAME: index.same_text()})


def _codecs(stream: str, columns: list[str]) -> dict[str, Any]:
    fast = _FAST.get(stream)
    if fast is None:
        return {"compression": "zstd", "compression_level": 3}
    return {
        "compression": {name: "lz4" if name in fast else "zstd" for name in columns},
        "compression_level": {name: 3 for name in columns if name not in fast},
    }
