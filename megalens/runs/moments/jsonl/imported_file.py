"""One source file as a run folder in the cache: sealed segments of what was read, and the newest rows in
memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
import zlib
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ....hub.segment_file import sorted_by_step, write_segment
from ....protocol import PARTIAL, SEALED, STREAMS, replace_file, segment_name, stream_segments
from ...errors import ClientError
from ...recorded_parquet import DAMAGE
from ..rows.cache_folder import cache_folder
from ..rows.pieces import MemoryPiece, Piece
from ..rows.recorded_rows import SealedFile
from .chunk import ROWS
from .stretch import Stretch
from .tree import StatisticsFile

_FORMAT = 2
_STREAM = STREAMS["moments"]
_MEMBER = b"megalens.source"
_TAIL = 4096
_BLOCK = 1 << 24
_ORPHAN_SECONDS = 3600.0
# Rows in memory are sealed when their text is so large, or this share of what is sealed: the next process
# reads no more than that again.
_LEAST_BYTES, _MOST_BYTES, _SHARE = 1 << 16, 6 << 20, 8


class ImportedPart(NamedTuple):
    """Rows that were read of a stretch."""

    path: Path | None
    stretch: Stretch
    pieces: list[Piece]


class ImportedFile:
    """What was read of one file. The caller holds the lock of :attr:`folder` while it adds to it."""

    def __init__(self, source: StatisticsFile) -> None:
        self.source = source
        key = hashlib.sha256(
            f"{_FORMAT}\0{os.path.abspath(source.path)}".encode(errors="surrogateescape")
        ).hexdigest()
        self.folder = cache_folder() / key[:2] / key
        self.replaced = 0
        """How often the file was found to be replaced."""
        self.read = Stretch()
        """All that was read."""
        self.newest = Stretch()
        """What of it is in memory alone."""
        # End and time of the text that somebody read last, whether it is sealed or not.
        self._seen = (0, 0)
        self._number = 0
        self._sealed: list[ImportedPart] = []
        self._rows = ROWS.empty_table()
        self._in_memory: ImportedPart | None = None

    def parts(self) -> list[ImportedPart]:
        """Return what was read, in the order of the file."""
        if self.newest.end and self._in_memory is None:
            pieces: list[Piece] = [MemoryPiece(self._rows)] if self._rows.num_rows else []
            self._in_memory = ImportedPart(None, self.newest, pieces)
        return [*self._sealed, *([self._in_memory] if self._in_memory is not None else [])]

    def load(self) -> bool:
        """Take over what another process has sealed of the file, if it still fits; return whether it did."""
        try:
            listed = stream_segments(self.folder, _STREAM.name)
        except OSError:
            listed = []
        self._number = max([self._number, *(segment.number + 1 for segment in listed)])
        paths = [segment.path for segment in listed if segment.sealed]
        if paths == [part.path for part in self._sealed]:
            return False
        self._forget()
        for path in paths:
            try:
                part = _sealed_part(path)
            except (*DAMAGE, ClientError, KeyError):
                # Damaged, or evicted meanwhile: it is read anew from here on.
                break
            if part.stretch.begin != self.read.end:
                break
            self._sealed.append(part)
            self.read = self.read.then(part.stretch)
        with contextlib.suppress(OSError, ValueError):
            # What was used last is evicted last.
            (self.folder / "used").touch()
            end, written = map(int, (self.folder / "used").read_text().split())
            self._seen = end, written
        return True

    def look(self) -> int:
        """Return the file's size, forgetting all of a replaced file; raises ``unreadable``."""
        try:
            found = os.stat(self.source.path)
            with self.source.path.open("rb"):
                # Only opening it tells whether it may be read.
                pass
            if self.read.end and self._is_another(found):
                self._forget()
                self.replaced += 1
            return found.st_size
        except OSError as error:
            raise ClientError(
                f"{self.source.name} cannot be read: {error.strerror or error}. You need the permission to "
                "read it.",
                code="unreadable",
            ) from error

    def prepare(self) -> None:
        """Make the run folder, and remove what does not count in it: of a replaced file, or of a killed
        process.
        """
        home = self.folder / _STREAM.name
        home.mkdir(parents=True, exist_ok=True)
        counting = {part.path for part in self._sealed}
        for path in home.iterdir():
            with contextlib.suppress(OSError):
                # Without locks another process may be writing it.
                partial = path.name.endswith(PARTIAL)
                if path not in counting and (
                    not partial or time.time() - path.stat().st_mtime > _ORPHAN_SECONDS
                ):
                    path.unlink()
        if not (self.folder / "run.json").is_file():
            run = {"id": self.folder.name, "name": self.source.name, "started": time.time()}
            replace_file(self.folder / "run.json", orjson.dumps({"format": 2, "run": run}))

    def add(self, rows: pa.Table, stretch: Stretch) -> None:
        """Add what comes next to what is in memory; ``crc`` goes on with that of :attr:`newest`."""
        self._rows = pa.concat_tables([_before(self._rows, rows), rows]).combine_chunks()
        self.newest, self._in_memory = self.newest.then(stretch), None
        self._take(stretch)

    def seal(self, *, rest: bool) -> None:
        """Seal what is in memory; the ``rest`` of a file only if it is much."""
        sealed, size = self.newest.begin, self.newest.end - self.newest.begin
        much = max(_LEAST_BYTES, min(_MOST_BYTES, sealed // _SHARE))
        if size and (not rest or not sealed or size >= much):
            rows, stretch = self._rows, self.newest
            self.commit(*write_part(rows, stretch, self.folder), stretch)
            self._empty_memory()

    def commit(self, partial: str, first_step: int, stretch: Stretch) -> None:
        """Have a segment that :func:`write_part` wrote count."""
        home = self.folder / _STREAM.name
        path = home / segment_name(self._number, first_step, SEALED)
        os.replace(home / partial, path)
        self._number += 1
        self._sealed.append(_sealed_part(path))
        if stretch.end > self.read.end:
            self._take(stretch)

    def _take(self, stretch: Stretch) -> None:
        self.read = self.read.then(stretch)
        self._seen = self.read.end, self.read.written
        (self.folder / "used").write_text(f"{self.read.end} {self.read.written}")

    def _is_another(self, found: os.stat_result) -> bool:
        read = self.read
        if found.st_size < read.end or tail_digest(self.source.path, read.end) != read.tail:
            return True
        end, written = self._seen
        if found.st_mtime_ns != written and (found.st_ino != read.inode or found.st_size == end):
            return any(
                text_crc(self.source.path, part.stretch.begin, part.stretch.end) != part.stretch.crc
                for part in self.parts()
            )
        return False

    def _forget(self) -> None:
        self.read, self._sealed = Stretch(), []
        self._empty_memory()

    def _empty_memory(self) -> None:
        self.newest, self._rows, self._in_memory = Stretch(), ROWS.empty_table(), None


def _sealed_part(path: Path) -> ImportedPart:
    import pyarrow.parquet as pq

    stretch = Stretch.of_json((pq.read_metadata(path).metadata or {})[_MEMBER])
    return ImportedPart(path, stretch, SealedFile(path, path.stat()).pieces)


def _before(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Return the older rows that newer ones do not supersede."""
    overlap = pc.max(older["step"]).as_py(), pc.min(newer["step"]).as_py()
    if None not in overlap and overlap[0] >= overlap[1]:
        for stat in newer["stat"].unique().to_pylist():
            first = pc.min(newer.filter(pc.equal(newer["stat"], stat))["step"])
            superseded = pc.and_(pc.equal(older["stat"], stat), pc.greater_equal(older["step"], first))
            older = older.filter(pc.invert(superseded))
    return older


def write_part(rows: pa.Table, stretch: Stretch, folder: Path) -> tuple[str, int]:
    """Write a segment that does not count yet, and return its name and first step."""
    name = f"{uuid.uuid4().hex}{SEALED}{PARTIAL}"
    schema = rows.schema.with_metadata({_MEMBER: stretch.to_json()})
    rows = sorted_by_step(rows)
    with (folder / _STREAM.name / name).open("wb") as file:
        write_segment(file, _STREAM, schema, [rows])
        file.flush()
        os.fsync(file.fileno())
    return name, rows["step"][0].as_py() if rows.num_rows else 0


def text_crc(path: Path, begin: int, end: int, crc: int = 0) -> int:
    """Return the checksum of a part of a file, going on with ``crc``."""
    with path.open("rb") as file:
        file.seek(begin)
        while begin < end and (block := file.read(min(_BLOCK, end - begin))):
            crc, begin = zlib.crc32(block, crc), begin + len(block)
    return crc


def tail_digest(path: Path, end: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, end - _TAIL))
        return hashlib.blake2b(file.read(min(_TAIL, end)), digest_size=16).hexdigest()
