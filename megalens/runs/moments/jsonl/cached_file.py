"""One JSONL file, parsed to Parquet as far as it goes: what is appended becomes a further part."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ....protocol import replace_file
from ...errors import ClientError
from ..rows.cache_folder import cache_folder
from .chunk import CHUNK_COLUMNS, JsonlChunk
from .tree import StatisticsFile

_FORMAT = 1
_TAIL = 4096
_SMALL_ROWS = 100_000
_MANY_SMALL = 16
_QUICK_ROWS = 200_000
_TOO_MANY = 256
_MOST_PROBLEMS = 50
_ORPHAN_SECONDS = 3600.0
_BLOCK = 1 << 24
# Nearly every number is another one: a dictionary of them would be built in vain.
_DICTIONARIES = [name for name in CHUNK_COLUMNS.names if name not in ("mean", "m2", "m3", "m4")]


@dataclass(frozen=True)
class CachedPart:
    """A stretch of the file as Parquet. ``crc`` is of the text: it tells whether the file is the same."""

    file: str
    begin: int
    end: int
    rows: int
    crc: int


@dataclass
class _State:
    """The content of the manifest."""

    offset: int = 0
    lines: int = 0
    inode: int = 0
    mtime: int = 0
    tail: str = ""
    skipping: bool = False
    parts: list[CachedPart] = field(default_factory=list)
    layouts: list[list[str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_out: int = 0


class CachedFile:
    """What is known of one file. The caller holds the lock of :attr:`folder` while it adds to it."""

    def __init__(self, source: StatisticsFile) -> None:
        self.source = source
        key = hashlib.sha256(
            f"{_FORMAT}\0{os.path.abspath(source.path)}".encode(errors="surrogateescape")
        ).hexdigest()
        self.folder = cache_folder() / key[:2] / key
        self.replaced = 0
        """How often the file was found to be replaced."""
        self._state = _State()
        self._records: list[NDArray[np.int64]] = []
        self._manifest = (0, 0)
        self._layout_indices: dict[tuple[str, ...], int] = {}

    @property
    def offset(self) -> int:
        """How far the file was read, bytes."""
        return self._state.offset

    @property
    def lines(self) -> int:
        return self._state.lines

    @property
    def skipping(self) -> bool:
        """Whether the offset is inside a line that is too long to be read."""
        return self._state.skipping

    @property
    def written(self) -> int:
        """Modification time of what was read, nanoseconds."""
        return self._state.mtime

    @property
    def layouts(self) -> list[list[str]]:
        return self._state.layouts

    @property
    def problems(self) -> list[str]:
        """Sentences about lines that are left out; the first of them."""
        return self._state.problems

    @property
    def left_out(self) -> int:
        return self._state.left_out

    def parts(self) -> list[str]:
        return [str(self.folder / part.file) for part in self._state.parts if part.rows]

    def records(self) -> NDArray[np.int64]:
        """Return one row a record: offset of its line, stat index, step, rows, layout index."""
        if len(self._records) > 1:
            self._records = [np.concatenate(self._records)]
        return self._records[0] if self._records else np.zeros((0, 5), np.int64)

    def load(self) -> None:
        """Take over what this or another process has parsed of the file, if it still fits."""
        path = self.folder / "manifest.json"
        try:
            found = path.stat()
            if (found.st_mtime_ns, found.st_size) == self._manifest:
                return
            manifest = orjson.loads(path.read_bytes())
            parts = [CachedPart(**part) for part in manifest.pop("parts")]
            state = _State(parts=parts, **manifest)
            records = [np.load(self.folder / f"{part.file}.npy", allow_pickle=False) for part in parts]
            missing = [part.file for part in parts if part.rows and not (self.folder / part.file).is_file()]
        except (OSError, ValueError, TypeError, KeyError):
            # Nothing is there, or the rest of an eviction: the file is parsed from the beginning.
            self._forget()
            return
        if missing or any(block.ndim != 2 or block.shape[1] != 5 for block in records):
            self._forget()
            return
        self._state, self._records, self._layout_indices = state, records, {}
        self._manifest = (found.st_mtime_ns, found.st_size)
        with contextlib.suppress(OSError):
            # What was used last is evicted last.
            (self.folder / "used").touch()

    def look(self) -> int:
        """Return the file's size, forgetting all of a replaced file; raises ``unreadable``."""
        state = self._state
        try:
            found = os.stat(self.source.path)
            with self.source.path.open("rb"):
                # Only opening it tells whether it may be read.
                pass
            if state.offset and self._is_another(found):
                self._forget()
                self.replaced += 1
            return found.st_size
        except OSError as error:
            raise ClientError(
                f"{self.source.name} cannot be read: {error.strerror or error}. You need the permission to "
                "read it.",
                code="unreadable",
            ) from error

    def add(self, chunk: JsonlChunk, file: str, begin: int, end: int, crc: int) -> None:
        """Add what was read of a stretch; ``file`` is the Parquet file of :func:`write_part`."""
        state = self._state
        for problem in chunk.problems:
            self._tell(f"{self.source.name}, line {state.lines + problem.line}: {problem.what}.")
        state.left_out += chunk.left_out - len(chunk.problems)
        records = chunk.records.copy()
        indices = [self._layout_index(layout) for layout in chunk.layouts]
        if len(records):
            records[:, 4] = np.array(indices, np.int64)[records[:, 4]]
        rows = int(records[:, 3].sum()) if len(records) else 0
        self._records.append(records)
        self._put(f"{file}.npy", records)
        state.parts.append(CachedPart(file, begin, end, rows, crc))
        state.offset, state.lines = end, state.lines + chunk.lines

    def skip(self, end: int, lines: int, *, done: bool, crc: int) -> None:
        """Leave out a stretch that is a line too long to be read, or a part of one."""
        state = self._state
        if not state.skipping:
            self._tell(
                f"{self.source.name}, line {state.lines + 1}: it is longer than any record can be, and is "
                "left out."
            )
        name = f"{uuid.uuid4().hex}.none"
        nothing = np.zeros((0, 5), np.int64)
        self._records.append(nothing)
        self._put(f"{name}.npy", nothing)
        state.parts.append(CachedPart(name, state.offset, end, 0, crc))
        state.offset, state.lines, state.skipping = end, state.lines + lines, not done

    def save(self) -> None:
        """Write what is known, atomically, after joining small parts."""
        state = self._state
        found = os.stat(self.source.path)
        state.inode, state.mtime = found.st_ino, found.st_mtime_ns
        state.tail = self._tail(state.offset)
        self._join()
        path = self.folder / "manifest.json"
        replace_file(path, orjson.dumps(asdict(state)))
        (self.folder / "used").touch()
        after = path.stat()
        self._manifest = (after.st_mtime_ns, after.st_size)
        self._sweep()

    def _layout_index(self, layout: list[str]) -> int:
        state = self._state
        if len(self._layout_indices) != len(state.layouts):
            self._layout_indices = {tuple(known): index for index, known in enumerate(state.layouts)}
        index = self._layout_indices.setdefault(tuple(layout), len(state.layouts))
        if index == len(state.layouts):
            state.layouts.append(layout)
        return index

    def _is_another(self, found: os.stat_result) -> bool:
        state = self._state
        if found.st_size < state.offset or self._tail(state.offset) != state.tail:
            return True
        changed = found.st_mtime_ns != state.mtime
        if changed and (found.st_ino != state.inode or found.st_size == state.offset):
            return not self._same_text()
        return False

    def _same_text(self) -> bool:
        with self.source.path.open("rb") as file:
            for part in self._state.parts:
                file.seek(part.begin)
                crc, left = 0, part.end - part.begin
                while left and (block := file.read(min(_BLOCK, left))):
                    crc, left = zlib.crc32(block, crc), left - len(block)
                if left or crc != part.crc:
                    return False
        return True

    def _tail(self, offset: int) -> str:
        with self.source.path.open("rb") as file:
            file.seek(max(0, offset - _TAIL))
            return hashlib.blake2b(file.read(min(_TAIL, offset)), digest_size=16).hexdigest()

    def _forget(self) -> None:
        self._state, self._records, self._manifest, self._layout_indices = _State(), [], (0, 0), {}

    def _tell(self, sentence: str) -> None:
        self._state.left_out += 1
        if len(self._state.problems) < _MOST_PROBLEMS:
            self._state.problems.append(sentence)

    def _put(self, name: str, records: NDArray[np.int64]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / name).open("wb") as file:
            np.save(file, records, allow_pickle=False)

    def _join(self) -> None:
        """Join small parts at the end: every part costs each query a little."""
        parts = self._state.parts
        small = 0
        while small < len(parts) and parts[-1 - small].rows < _SMALL_ROWS:
            small += 1
        rows = sum(part.rows for part in parts[len(parts) - small :])
        if small < _MANY_SMALL or (rows > _QUICK_ROWS and small < _TOO_MANY):
            return
        tail = parts[-small:]
        tables = [pq.read_table(self.folder / part.file) for part in tail if part.rows]
        name = write_part(
            pa.concat_tables([table.cast(CHUNK_COLUMNS) for table in tables])
            if tables
            else CHUNK_COLUMNS.empty_table(),
            self.folder,
        )
        records = np.concatenate([np.load(self.folder / f"{part.file}.npy") for part in tail])
        self._put(f"{name}.npy", records)
        crc = 0
        with self.source.path.open("rb") as file:
            file.seek(tail[0].begin)
            left = tail[-1].end - tail[0].begin
            while left and (block := file.read(min(_BLOCK, left))):
                crc, left = zlib.crc32(block, crc), left - len(block)
        parts[-small:] = [CachedPart(name, tail[0].begin, tail[-1].end, rows, crc)]

    def _sweep(self) -> None:
        """Remove what no manifest names any more, once nobody can be reading it."""
        known = {name for part in self._state.parts for name in (part.file, f"{part.file}.npy")}
        before = time.time() - _ORPHAN_SECONDS
        for entry in os.scandir(self.folder):
            if entry.name not in known and entry.name not in ("manifest.json", "lock", "used"):
                with contextlib.suppress(OSError):
                    if entry.stat().st_mtime < before:
                        os.unlink(entry.path)


def write_part(table: pa.Table, folder: Path) -> str:
    """Write rows to a new Parquet file in ``folder`` and return its name."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{uuid.uuid4().hex}.parquet"
    pq.write_table(
        table,
        folder / name,
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARIES,
        dictionary_pagesize_limit=1 << 24,
        row_group_size=1 << 19,
        store_schema=False,
    )
    return name
