"""The stream ``moments`` of a run folder: sealed segments, and tails that may still grow."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....protocol import (
    BLOCKS,
    LAST_STEP,
    STREAMS,
    SUMMARY_LEVELS,
    file_name,
    layers_path,
    layers_schemas,
    open_plain,
    parse_json,
    segment_stamp,
    stream_schema,
    stream_segments,
)
from ...dask_engine import Each
from ...errors import ClientError
from ...query import Query
from ...recorded_arrow import DAMAGE, ArrowStream, FileStamp, check_message_size
from ...remote import bring
from ...run_folder import RunFolder
from ..source import MomentRows
from .hidden import without
from .pieces import (
    Chunk,
    Listed,
    MemoryPiece,
    Piece,
    PieceReading,
    Progress,
    Wanted,
    by_step,
    joined,
    listed_of,
)

_STREAM = STREAMS["moments"]
# A recorder's own groups are smaller; one is in memory at a time.
_GROUP_ROWS = 4_000_000
_LEAST_PACKED_BYTES = 8
_LISTED = ["step", "stat", "name"]
# Batches of a tail are joined to about this many rows, since each piece costs every question a little.
_PIECE_ROWS = 65_536
_SEALED_MEANWHILE = 5
_MOST_TEXT = 64 * 1024 * 1024
# Columns that have places in a list, and where the list is.
_SUMMARY_TEXTS = {"name": "layers", "gradient_stage": "stages"}


class RecordedRows(MomentRows):
    """Rows of a run folder. Sealed segments are listed once, and of a tail only what was appended is read.

    Where the training went back to a checkpoint, each step is of the attempt that trained it last. ``each``
    maps over segments to list.
    """

    def __init__(self, folder: Path, each: Each = map) -> None:
        super().__init__()
        earlier = RunFolder(folder).earlier if (folder / "attempts").is_dir() else []
        self._attempts = [
            *(_Attempt(part.path, until, each) for part, until in earlier),
            _Attempt(folder, LAST_STEP + 1, each),
        ]

    def refresh(self, progress: Progress | None = None) -> bool:
        """Look for new rows, and return whether there were any; raises ``unreadable``."""
        found = [attempt.refresh(progress) for attempt in self._attempts]
        # Of a live run this is no warning: the newest message of a recording that grows is often incomplete.
        cut = self._attempts[-1].cut
        what = "The moments stream ends within a message; it is read up to its last whole one."
        self.warnings = [what] if cut else []
        if any(found):
            self._changed()
        return any(found)

    def pieces(self) -> list[Piece]:
        return [piece for attempt in self._attempts for piece in attempt.pieces()]

    def close(self) -> None:
        for attempt in self._attempts:
            attempt.close()
        self._stats = {}


class _Attempt:
    """The files of one folder; rows from step ``until`` on do not count."""

    def __init__(self, folder: Path, until: int, each: Each) -> None:
        self._folder, self._until, self._each = folder, until, each
        self._files: dict[Path, SealedFile | _Tail] = {}
        self._more = False

    @property
    def cut(self) -> bool:
        """Whether a tail ends within a message, or before damage."""
        return any(file.cut for file in self._files.values())

    def pieces(self) -> list[Piece]:
        return [piece for file in self._files.values() for piece in file.pieces]

    def refresh(self, progress: Progress | None) -> bool:
        for _ in range(_SEALED_MEANWHILE):
            # A tail may be sealed, and old segments dropped, after the listing: a new one is complete,
            # without duplicates.
            with suppress(FileNotFoundError):
                self._look(progress)
                break
        more, self._more = self._more, False
        return more

    def _look(self, progress: Progress | None) -> None:
        bring(self._folder, _STREAM.name)
        listed = [(segment, segment.path.stat()) for segment in stream_segments(self._folder, _STREAM.name)]
        total, done = sum(about.st_size for _, about in listed), 0
        files: dict[Path, SealedFile | _Tail] = {}
        fresh = {segment.path for segment, about in listed if not self._has(segment.path, about)}
        new = [(segment.path, about) for segment, about in listed if segment.sealed and segment.path in fresh]
        sealed = iter(self._each(partial(_sealed_file, self._until), new))
        for segment, about in listed:
            file = self._files.get(segment.path)
            if file is None or segment.path in fresh:
                # A tail without rows has nothing new yet.
                self._more = self._more or file is not None or segment.sealed
                file = next(sealed) if segment.sealed else _Tail(segment.path, about, self._until)
            # What a tail has read is its own already, should a file behind it be gone.
            self._more = file.refresh() or self._more
            files[segment.path] = file
            done += about.st_size
            if progress is not None:
                progress(done, total, "reading")
        self._more = self._more or not self._files.keys() <= files.keys()
        self._files = files

    def _has(self, path: Path, about: os.stat_result) -> bool:
        file = self._files.get(path)
        return file is not None and file.same(about)

    def close(self) -> None:
        self._files = {}


def _sealed_file(until: int, given: tuple[Path, os.stat_result]) -> SealedFile:
    return SealedFile(*given, until)


class SealedFile:
    """A segment: its row groups that have rows from before step ``until``, or its summary with them."""

    cut = False

    def __init__(self, path: Path, found: os.stat_result, until: int = LAST_STEP + 1) -> None:
        self._stamp = FileStamp.of(found)
        summary = _summarized(path)
        fits = summary is not None and summary.high < until
        self.pieces: list[Piece] = [summary] if summary is not None and fits else _row_groups(path, until)

    def same(self, found: os.stat_result) -> bool:
        return self._stamp == FileStamp.of(found)

    def refresh(self) -> bool:
        """Return False: it never changes."""
        return False


def _row_groups(path: Path, until: int = LAST_STEP + 1) -> list[Piece]:
    reading = PieceReading(Wanted({}, ()))
    try:
        file = reading.file(path)
        _check_schema(path, file.schema)
        most = max(_GROUP_ROWS, file.size // _LEAST_PACKED_BYTES)
        if any(group.rows > most for group in file.groups):
            raise _unreadable(path, "It must have row groups of fewer rows.")
        groups = [at for at, group in enumerate(file.groups) if group.rows]
        made = [_RowGroup(path, at, reading) for at in groups]
        pieces: list[Piece] = [*made]
        if until <= LAST_STEP:
            pieces = [without(piece, dict.fromkeys(piece.listed, until)) for piece in made]
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise _unreadable(path, str(error)) from error
    finally:
        reading.close()
    return [piece for piece in pieces if piece.listed]


class _RowGroup(Piece):
    """A row group of a Parquet file, with at least one row; ``reading`` has the file open to list it."""

    def __init__(self, path: Path, group: int, reading: PieceReading) -> None:
        self._path, self._group = path, group
        file = reading.file(path)
        self.low, self.high, self.listed = listed_of(file.group(group, _LISTED))
        most = file.chunk("samples", group).high
        if most is None:
            most = pc.max(file.group(group, ["samples"])["samples"]).as_py()
        self.samples = most is not None and most >= 0

    def read(self, reading: PieceReading) -> Chunk:
        return reading.chunk(reading.file(self._path).group(self._group, reading.columns()))


class _SummarizedPiece(Piece):
    """A segment with a summary: its rows are looked at where a question is of more than one of its levels.

    Raises ``LookupError``, ``ValueError`` and the like where the summary is not whole or of another segment.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._known = path, list[Piece]()
        with open_plain(layers_path(path), buffering=0) as file, open_plain(path, buffering=0) as segment:
            schema = pa.ipc.open_stream(pa.PythonFile(file, "r")).schema
            about = parse_json(_inflated(schema.metadata[b"megalens.layers"]))
            names = _names(schema.metadata[b"megalens.names"])
            self._at: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
            at = file.tell()
            for stat, of in about["stats"].items():
                for level in (level for level in of if level.partition("/")[0] in SUMMARY_LEVELS):
                    self._at[stat, level] = []
                    for size, crc in of[level]:
                        self._at[stat, level].append((at, size, crc))
                        at += size
            if [about["segment"], at] != [segment_stamp(segment), os.fstat(file.fileno()).st_size]:
                raise ValueError("the summary must be whole, and of this segment")
        self._texts = {name: pa.array(about[key], pa.utf8()) for name, key in _SUMMARY_TEXTS.items()}
        self.listed = {
            stat: Listed(int(of["rows"]), np.array(of["steps"], np.int64), names[stat])
            for stat, of in about["stats"].items()
        }
        self.low = min(int(of.steps[0]) for of in self.listed.values())
        self.high = max(int(of.steps[-1]) for of in self.listed.values())
        self.samples = about["samples"] >= 0

    def parts(self, wanted: Wanted) -> Sequence[Piece]:
        return [self] if self._level(wanted) else self._rows()

    def read(self, reading: PieceReading) -> Chunk:
        (stat,) = reading.wanted.names
        with suppress(ClientError, struct.error, *DAMAGE):
            level = self._level(reading.wanted)
            few = self._of_blocks(stat, level, reading)
            return few or reading.chunk(self._merged(stat, level, reading.columns()))
        self._at = {}
        return by_step(joined([piece.read(reading) for piece in self._rows() if stat in piece.listed]))

    def _level(self, wanted: Wanted) -> str:
        """Return the best level that is there; nothing where there is none."""
        stats = [stat for stat in wanted.names if stat in self.listed]
        there = (level for level in wanted.levels if all((stat, level) in self._at for stat in stats))
        return next(there, "")

    def _of_blocks(self, stat: str, level: str, reading: PieceReading) -> Chunk | None:
        """Return the rows that a picture needs of the largest blocks that fit; None where none do."""
        wanted, steps = reading.wanted, self.listed[stat].steps
        first, last = wanted.first or 0, LAST_STEP if wanted.last is None else wanted.last
        if wanted.left_out is None or not reading.alone or steps[0] < first or steps[-1] > last:
            return None
        blocks = (block for block in reversed(BLOCKS) if (stat, f"{level}/{block}") in self._at)
        block = next((block for block in blocks if block <= wanted.left_out.block), None)
        if block is None:
            return None
        chunk = reading.chunk(self._merged(stat, f"{level}/{block}", reading.columns()))
        return chunk if wanted.left_out.add(chunk, steps) else None

    def _merged(self, stat: str, level: str, names: Sequence[str]) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for (at, size, crc), schema in zip(self._at[stat, level], layers_schemas(), strict=True):
            if there := [name for name in schema.names if name in names]:
                batch = self._batch(at, size, crc, schema, there)
                columns |= dict(zip(there, batch.columns, strict=True))
        columns["stat"] = pa.DictionaryArray.from_arrays(np.zeros(len(columns["step"]), np.int32), [stat])
        for name in columns.keys() & _SUMMARY_TEXTS.keys():
            columns[name] = pa.DictionaryArray.from_arrays(columns[name], self._texts[name])
        return pa.table(columns)

    def _batch(self, at: int, size: int, crc: int, schema: pa.Schema, names: Sequence[str]) -> pa.RecordBatch:
        path, head = layers_path(self._path), schema.serialize().to_pybytes()
        data = bytearray(len(head) + size)
        data[: len(head)] = head
        message = memoryview(data)[len(head) :]
        with open_plain(path, buffering=0) as file:
            file.seek(at)
            read = file.readinto(message)  # type: ignore[attr-defined]
        if read != size or zlib.crc32(message) != crc:
            raise ValueError("the summary is damaged")
        check_message_size(pa.BufferReader(data), path.name, len(head), len(data))
        options = pa.ipc.IpcReadOptions(
            included_fields=[schema.get_field_index(name) for name in names], use_threads=False
        )
        batch = pa.ipc.open_stream(pa.BufferReader(data), options=options).read_next_batch()
        batch.validate(full=True)
        return batch

    def _rows(self) -> list[Piece]:
        self._known = self._known or _row_groups(self._path)
        return self._known


def _summarized(path: Path) -> _SummarizedPiece | None:
    """Return a segment by its summary; None where there is none that fits."""
    with suppress(ClientError, AttributeError, zlib.error, *DAMAGE):
        return _SummarizedPiece(path)
    return None


# Segments of a run have the same names, which are then in memory once.
@lru_cache(maxsize=8)
def _names(deflated: bytes) -> dict[str, tuple[str, ...]]:
    return {stat: tuple(map(str, names)) for stat, names in parse_json(_inflated(deflated)).items()}


def _inflated(deflated: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(deflated, _MOST_TEXT)
    if not inflater.eof:
        raise ValueError("the summary must say less")
    return text


class _Tail:
    """An Arrow stream, read incrementally. Its rows stay in memory until it is sealed."""

    def __init__(self, path: Path, found: os.stat_result, until: int) -> None:
        self._path, self._until = path, until
        self._inode = found.st_ino
        self._read_to = 0
        self.pieces: list[MemoryPiece] = []
        self.cut = False

    def same(self, found: os.stat_result) -> bool:
        """Whether this is the file that was read, possibly grown since."""
        return self._inode == found.st_ino and found.st_size >= self._read_to

    def refresh(self) -> bool:
        """Read the new complete messages, and return whether there were any."""
        before, batches, rows = self._read_to, list[pa.RecordBatch](), 0
        self.cut = False
        if self._path.stat().st_size == before:
            return False
        reading = ArrowStream(self._path, _STREAM, Query(), _STREAM.schema.names)
        try:
            for batch in reading.batches(before):
                batches.append(batch)
                rows += batch.num_rows
                self._read_to = reading.read_to
                if rows >= _PIECE_ROWS:
                    self._keep(batches)
                    batches, rows = [], 0
        finally:
            self._keep(batches)
            self.cut = reading.cut
        return self._read_to > before

    def _keep(self, batches: list[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches, _STREAM.schema)
        if self._until <= LAST_STEP:
            table = table.filter(pc.less(table["step"], self._until))
        if not table.num_rows:
            return
        piece = MemoryPiece(table)
        if self.pieces and self.pieces[-1].table.num_rows < _PIECE_ROWS:
            piece = MemoryPiece(pa.concat_tables([self.pieces.pop().table, piece.table]))
        self.pieces.append(piece)


def _check_schema(path: Path, schema: pa.Schema) -> None:
    """Raise ``unreadable`` for missing columns, and for text where numbers are wanted."""
    missing = _STREAM.lacking(schema.names)
    if missing:
        raise _unreadable(path, f"It lacks the columns {', '.join(missing)}.")
    for field in stream_schema(_STREAM.name):
        if field.name not in schema.names:
            continue
        found = schema.field(field.name).type
        found = found.value_type if pa.types.is_dictionary(found) else found
        fits = (
            _is_text(found)
            if _is_text(field.type)
            else pa.types.is_integer(found) or pa.types.is_floating(found)
        )
        if not fits:
            raise _unreadable(path, f"Its column {field.name} must be {field.type}, got {found!s:.100}.")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unreadable(path: Path, why: str) -> ClientError:
    reason = why.replace(str(path.parent), "…")[:300]
    return ClientError(f"Could not read {file_name(path)}. {reason}", code="unreadable")
