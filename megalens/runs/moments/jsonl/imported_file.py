"""One JSONL file as a run folder in the cache: sealed segments of what was read, and the newest rows in
memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ClientError
from ..rows.import_folder import ROWS, ImportFolder, is_much, write_part
from ..rows.pieces import MemoryPiece, Piece
from .stretch import Stretch
from .tree import StatisticsFile

_TAIL = 4096
_BLOCK = 1 << 24


class ImportedPart(NamedTuple):
    """Rows that were read of a stretch."""

    stretch: Stretch
    pieces: list[Piece]


class ImportedFile(ImportFolder[Stretch]):
    """What was read of one file."""

    def __init__(self, source: StatisticsFile) -> None:
        super().__init__(source.path, Stretch.of_json)
        self.source = source
        self.replaced = 0
        """How often the file was found to be replaced."""
        self.read = Stretch()
        """All that was read."""
        self.newest = Stretch()
        """What of it is in memory alone."""
        # End and time of the text that somebody read last, whether it is sealed or not.
        self._seen = (0, 0)
        self._rows = ROWS.empty_table()
        self._in_memory: ImportedPart | None = None

    def parts(self) -> list[ImportedPart]:
        """Return what was read, in the order of the file."""
        if self.newest.end and self._in_memory is None:
            pieces: list[Piece] = [MemoryPiece(self._rows)] if self._rows.num_rows else []
            self._in_memory = ImportedPart(self.newest, pieces)
        sealed = [ImportedPart(part.source, part.pieces) for part in self.sealed]
        return sealed if self._in_memory is None else [*sealed, self._in_memory]

    def take(self, source: Stretch) -> bool:
        follows = source.begin == self.read.end
        if follows:
            self.read = self.read.then(source)
        return follows

    def load(self) -> bool:
        loaded = super().load()
        if loaded:
            with contextlib.suppress(OSError, ValueError):
                end, written = map(int, (self.folder / "used").read_text().split())
                self._seen = end, written
        return loaded

    def look(self) -> int:
        """Return the file's size, forgetting all of a replaced file; raises ``unreadable``."""
        try:
            found = os.stat(self.source.path)
            with self.source.path.open("rb"):
                # Only opening it tells whether it may be read.
                pass
            if self.read.end and self._is_another(found):
                self.forget()
                self.replaced += 1
            return found.st_size
        except OSError as error:
            raise ClientError(
                f"{self.source.name} cannot be read: {error.strerror or error}. You need the permission to "
                "read it.",
                code="unreadable",
            ) from error

    def add(self, rows: pa.Table, stretch: Stretch) -> None:
        """Add what comes next to what is in memory; ``crc`` goes on with that of :attr:`newest`."""
        self._rows = pa.concat_tables([_before(self._rows, rows), rows]).combine_chunks()
        self.newest, self._in_memory = self.newest.then(stretch), None
        self._note(stretch)

    def seal(self, *, rest: bool) -> None:
        """Seal what is in memory; the ``rest`` of a file only if it is much."""
        newest = self.newest
        size = newest.end - newest.begin
        if size and (not rest or is_much(size, newest.begin)):
            self.commit(*write_part(self._rows, newest.to_json(), self.folder))
            self._empty_memory()

    def add_written(self, partial: str, first_step: int, stretch: Stretch) -> None:
        """Add what comes next, which was written already."""
        self.seal(rest=False)
        self.commit(partial, first_step)
        self._note(stretch)

    def _note(self, stretch: Stretch) -> None:
        self.take(stretch)
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

    def forget(self) -> None:
        super().forget()
        self.read = Stretch()
        self._empty_memory()

    def _empty_memory(self) -> None:
        self.newest, self._rows, self._in_memory = Stretch(), ROWS.empty_table(), None


def _before(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Return the older rows that newer ones do not supersede."""
    overlap = pc.max(older["step"]).as_py(), pc.min(newer["step"]).as_py()
    if None not in overlap and overlap[0] >= overlap[1]:
        for stat in newer["stat"].unique().to_pylist():
            first = pc.min(newer.filter(pc.equal(newer["stat"], stat))["step"])
            superseded = pc.and_(pc.equal(older["stat"], stat), pc.greater_equal(older["step"], first))
            older = older.filter(pc.invert(superseded))
    return older


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
