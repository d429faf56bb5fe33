"""Sealed segments: rows of a stream, sorted by step, as a Parquet file to which nothing is added."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol import (
    PARTIAL,
    SEALED,
    Stream,
    StreamPolicy,
    is_stream_file,
    layers_path,
    new_file_mode,
    segment_stamp,
    stream_segments,
    take_mode,
)
from .layer_rows import LayerRows
from .options import HubError

_DICTIONARY_BYTES = 16 * 1024 * 1024
_LABEL_BYTES = 16
_SUMMARIZED = "moments"
# A recorder's tail is smaller, and becomes row groups that end where their steps do.
_TOGETHER_BYTES = 128 * 1024 * 1024


def seal_tail(
    tail: Path, stream: Stream, *, rows: int | None = None, identity: tuple[int, int] | None = None
) -> Path:
    """Write the rows of a tail to a Parquet segment next to it, with a summary where the stream has one, and
    remove the tail once they are safely on disk.

    Every file is named within the folder that was opened first: a folder that is moved meanwhile, because its
    training went back to a checkpoint, is sealed where it is, and the files of its successor are not touched.

    Parameters
    ----------
    tail : Path
        The ``.arrows`` file, to which nothing is written any more.
    rows : int, optional
        How many rows it must have. When absent, as of a hub that was killed, those up to the last whole
        message are taken, where no more than one message can have been cut off.
    identity : (int, int), optional
        Device and number that the file must have.

    Returns
    -------
    Path
        The segment.

    Raises
    ------
    OSError
        When the disk is full or fails, or the tail is gone. The tail is then as it was.
    HubError
        When the tail is damaged, or another file.
    """
    target, partial = tail.stem + SEALED, tail.stem + SEALED + PARTIAL
    folder = os.open(tail.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            descriptor = os.open(tail.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            # A sealer that was killed had done it all but for saying so.
            os.stat(target, dir_fd=folder, follow_symlinks=False)
            return tail.with_name(target)
        with open(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            if identity is not None and identity != (found.st_dev, found.st_ino):
                raise HubError(f"{tail.name} is another file by now.")
            schema, batches = read_tail(file, tail.name, rows)
        _remove(partial, folder)
        try:
            layers = LayerRows() if stream.name == _SUMMARIZED else None
            with _created(partial, folder) as made:
                lowest = [each["step"].to_numpy().min() for each in batches]
                tables = in_order(lowest, lambda at: pa.Table.from_batches([batches[at]]))
                write_segment(made, stream, schema, tables if layers is None else layers.through(tables))
                made.flush()
                os.fsync(made.fileno())
                if layers is not None:
                    _summarize(layers, segment_stamp(made), layers_path(tail).name, folder)
                # The child of a hub that was killed may be at the same tail.
                if not os.path.samestat(os.fstat(made.fileno()), os.stat(partial, dir_fd=folder)):
                    raise HubError(f"{tail.name} is being sealed by another process.")
            # Who deleted the tail meanwhile deleted the rows.
            os.stat(tail.name, dir_fd=folder, follow_symlinks=False)
            os.replace(partial, target, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            _remove(partial, folder)
            raise
        os.fsync(folder)
        _remove(tail.name, folder)
    finally:
        os.close(folder)
    return tail.with_name(target)


def sealed_bytes(segment: Path) -> int:
    """Return what a segment and its summary take."""
    size = segment.stat().st_size
    with suppress(FileNotFoundError):
        size += layers_path(segment).stat().st_size
    return size


def remove_segment(segment: Path) -> None:
    """Remove a segment and its summary, as far as they are there."""
    segment.unlink(missing_ok=True)
    layers_path(segment).unlink(missing_ok=True)


def _summarize(layers: LayerRows, stamp: list[int], name: str, folder: int) -> None:
    _remove(name, folder)
    # One that was cut short is none.
    if text := layers.file(stamp):
        with _created(name, folder) as made:
            made.write(text)


def _created(name: str, folder: int) -> BinaryIO:
    mode = new_file_mode(folder)
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
    made = open(descriptor, "wb", buffering=1 << 20)  # noqa: SIM115
    take_mode(descriptor, mode)
    return made


def clear_leftovers(folder: Path, stream: str) -> None:
    """Remove what a killed sealer left of a stream: half a segment, or a sealed tail. Raises ``OSError``."""
    counting = {each.path.name for each in stream_segments(folder, stream)}
    sealed = {Path(name).stem for name in counting if name.endswith(SEALED)}
    summaries = {layers_path(Path(name)).name for name in sealed}
    for path in (folder / stream).iterdir() if (folder / stream).is_dir() else ():
        orphan = is_stream_file(path.name) and path.name.startswith("_") and path.name not in summaries
        if (
            orphan
            or path.name.endswith(SEALED + PARTIAL)
            or (path.stem in sealed and path.name not in counting)
        ):
            path.unlink(missing_ok=True)


def write_segment(file: BinaryIO, stream: Stream, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write a segment as the policy of its stream says.

    ``schema`` has the rows' columns; those of an older recording may lack some. Its metadata is written too.
    ``tables`` are sorted by step, no step in two of them.
    """
    # The hub itself seals when it ends; its start should not wait for the import.
    import pyarrow.parquet as pq

    policy = stream.policy
    if not policy.null_marks:
        # No row has nulls, and marks of which there are none would cost as much to read as the numbers.
        schema = pa.schema([field.with_nullable(False) for field in schema], schema.metadata)
    codecs = _codecs(policy.fast, schema.names)
    with pq.ParquetWriter(
        file,
        schema,
        **codecs,
        use_dictionary=_dictionaries(policy, schema),
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
    ) as writer:
        for table in tables:
            for begin, end in _groups(table, policy):
                group = table.slice(begin, end - begin).cast(schema)
                writer.write_table(group, row_group_size=max(1, end - begin))


def write_beside(
    segment: Path, stream: Stream, schema: pa.Schema, tables: Iterable[pa.Table], old: Path | None = None
) -> None:
    """Write a segment to a file beside it, which takes its place once it is on the disk.

    ``old`` has the same rows: it is moved there first, so that at no moment two files have them. Whatever
    fails, nothing is left of the new one.
    """
    partial = segment.with_name(segment.name + PARTIAL)
    partial.unlink(missing_ok=True)
    try:
        with open(partial, "xb", buffering=1 << 20) as made:
            take_mode(made.fileno(), new_file_mode(segment.parent))
            write_segment(made, stream, schema, tables)
            made.flush()
            os.fsync(made.fileno())
        if old is not None:
            os.replace(old, segment)
        os.replace(partial, segment)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def in_order(lowest: Sequence[float | None], read: Callable[[int], pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of pieces sorted by step, no step in two tables, in memory of a few pieces.

    ``lowest`` is each piece's lowest step, None where nobody knows, ``read`` gives a piece. Rows of one step
    stay in the order in which they came.
    """
    # The lowest step of all later pieces: what is below it is complete.
    later = np.full(len(lowest) + 1, np.inf)
    for each in reversed(range(len(lowest))):
        known = lowest[each]
        later[each] = min(later[each + 1], -np.inf if known is None else known)
    rest: list[pa.Table] = []
    size = 0
    for each in range(len(lowest)):
        rest.append(read(each))
        # A tail may have a message a step: what is together is counted, not summed up each time, and roughly.
        size += rest[-1].get_total_buffer_size()
        if size < _TOGETHER_BYTES and each + 1 < len(lowest):
            continue
        table = sorted_by_step(pa.concat_tables(rest))
        complete = int(np.searchsorted(table["step"].to_numpy(), later[each + 1], "left"))
        if complete:
            yield table.slice(0, complete)
        rest = [table.slice(complete)]
        size = rest[0].nbytes


def sorted_by_step(table: pa.Table) -> pa.Table:
    """Return rows sorted by step, those of one step in the order in which they came."""
    table = table.combine_chunks()
    step = table["step"].to_numpy()
    return table.take(np.argsort(step, kind="stable")) if (step[1:] < step[:-1]).any() else table


def read_tail(file: BinaryIO, name: str, rows: int | None) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Return a tail's schema and its batches that have rows, which lie in the file.

    Raises ``HubError`` when it is damaged.
    """
    # A file of no bytes cannot be mapped.
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""
    source = pa.BufferReader(data)
    batches: list[pa.RecordBatch] = []
    begin = largest = 0
    try:
        reader = pa.ipc.open_stream(source)
        begin = source.tell()
        while True:
            batches.append(reader.read_next_batch())
            begin, largest = source.tell(), max(largest, source.tell() - begin)
    except StopIteration:
        pass
    except (pa.ArrowInvalid, OSError) as error:
        if begin == 0:
            raise HubError(f"{name} is no stream of Arrow.") from error
    found = sum(batch.num_rows for batch in batches)
    if rows is not None and rows != found:
        raise HubError(f"{name} is damaged: {found} of its {rows} rows can be read.")
    if rows is None and (left := source.size() - begin) > largest:
        raise HubError(f"{name} is damaged: its last {left} bytes cannot be read.")
    return reader.schema, [batch for batch in batches if batch.num_rows]


def _groups(table: pa.Table, policy: StreamPolicy) -> Iterator[tuple[int, int]]:
    """Yield the first and past the last row of each row group: whole steps, unless one exceeds a group."""
    rows = table.num_rows
    step = table["step"].to_numpy()
    steps = np.append(np.flatnonzero(step[1:] != step[:-1]) + 1, rows)
    ends = _row_ends(table)
    begin = 0
    while begin < rows:
        before = ends[begin - 1] if begin else 0
        most = int(np.searchsorted(ends, before + policy.group_bytes, "right"))
        most = max(begin + 1, min(most, begin + policy.group_rows))
        if begin and step[begin] == step[begin - 1]:
            # The rest of a step that was cut has a group of its own.
            end = min(most, int(steps[np.searchsorted(steps, begin, "right")]))
        else:
            last = int(steps[np.searchsorted(steps, most, "right") - 1])
            end = last if begin < last <= most else most
        yield begin, end
        begin = end


def _row_ends(table: pa.Table) -> NDArray[np.int64]:
    """Return roughly the bytes of the rows up to and with each."""
    import pyarrow.compute as pc

    size = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        kind = column.type
        if pa.types.is_string(kind):
            size += pc.binary_length(column).to_numpy() + 4
        elif pa.types.is_list(kind):
            texts = pa.types.is_string(kind.value_type)
            each = _LABEL_BYTES if texts else kind.value_type.bit_width // 8
            size += pc.list_value_length(column).to_numpy() * each + 4
        else:
            size += kind.bit_width // 8
    return size.cumsum()


def _dictionaries(policy: StreamPolicy, schema: pa.Schema) -> list[str]:
    if policy.dictionary is not None:
        return [name for name in policy.dictionary if name in schema.names]
    found = []
    for field in schema:
        inner = field.type.value_type if pa.types.is_list(field.type) else field.type
        # Measured numbers hardly repeat: a dictionary of them took 17 times as long and 1.5 times the space.
        if not pa.types.is_floating(inner):
            found.append(f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name)
    return found


def _codecs(fast: tuple[str, ...], columns: list[str]) -> dict[str, Any]:
    if not fast:
        return {"compression": "zstd", "compression_level": 3}
    return {
        # Of numbers of which hardly any comes twice there is nothing to compress but repetitions, which the
        # fastest codec finds as well and undoes at no cost.
        "compression": {name: "lz4" if name in fast else "zstd" for name in columns},
        "compression_level": {name: 3 for name in columns if name not in fast},
    }


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
