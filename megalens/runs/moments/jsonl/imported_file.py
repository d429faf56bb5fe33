"""One JSONL file as a run folder in the cache: what was read of it, sealed and in memory, and from where."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ClientError
from ..rows.import_folder import ROWS, ImportFolder, is_much, write_part
from ..rows.pieces import MemoryPiece, Piece
from .tree import StatisticsFile

MOST_PROBLEMS = 50

Problem = tuple[int, str]
"""A line that is left out in full or in part: its number, counted from 1 in the stretch, and a sentence."""

_TAIL = 4096
_BLOCK = 1 << 24


@dataclass(frozen=True)
class Course:
    """How the steps of one stat went on in the order of the lines.

    ``times`` counts how often a step was not after the one before it, at last ``back_from`` one ``back_to``
    another.
    """

    first: int
    last: int
    times: int = 0
    back_from: int = 0
    back_to: int = 0

    def then(self, later: Course) -> Course:
        if later.first <= self.last:
            seam = Course(self.first, self.last, self.times + 1, self.last, later.first)
        else:
            seam = self
        last = later if later.times else seam
        return Course(self.first, later.last, seam.times + later.times, last.back_from, last.back_to)


@dataclass(frozen=True)
class Stretch:
    """Bytes ``begin`` to ``end`` of a file, and what was read of them.

    Attributes
    ----------
    crc : int
        Of the text: it tells whether the file is the same.
    inode, written : int
        Of the file when it was read; the time of its last change in nanoseconds.
    tail : str
        Digest of the last bytes before ``end``.
    lines : int
        Ends of lines.
    skipping : bool
        Whether ``end`` is inside a line that is too long to be read.
    problems : tuple
        The first of them; ``left_out`` counts all.
    courses : mapping
        By stat.
    unscaled : tuple of str
        The stats of which an unknown loss scale may be in some values.
    """

    begin: int = 0
    end: int = 0
    crc: int = 0
    inode: int = 0
    written: int = 0
    tail: str = ""
    lines: int = 0
    skipping: bool = False
    problems: tuple[Problem, ...] = ()
    left_out: int = 0
    courses: dict[str, Course] = field(default_factory=dict)
    unscaled: tuple[str, ...] = ()

    def then(self, later: Stretch) -> Stretch:
        """Return both as one; ``later`` begins where this ends, and its ``crc`` goes on with this one's."""
        if self.begin == self.end:
            return later
        problems = (*self.problems, *((self.lines + line, what) for line, what in later.problems))
        courses = {
            stat: self.courses[stat].then(course) if stat in self.courses else course
            for stat, course in later.courses.items()
        }
        return Stretch(
            begin=self.begin,
            end=later.end,
            crc=later.crc,
            inode=later.inode,
            written=later.written,
            tail=later.tail,
            lines=self.lines + later.lines,
            skipping=later.skipping,
            problems=problems[:MOST_PROBLEMS],
            left_out=self.left_out + later.left_out,
            courses=self.courses | courses,
            unscaled=tuple(dict.fromkeys((*self.unscaled, *later.unscaled))),
        )

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: bytes) -> Stretch:
        """Return what :meth:`to_json` gave; else raises ``ValueError``, ``TypeError`` or ``KeyError``."""
        members = orjson.loads(text)
        members["courses"] = {stat: Course(**each) for stat, each in members["courses"].items()}
        members["problems"] = tuple((int(line), str(what)) for line, what in members["problems"])
        return cls(**members)


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
