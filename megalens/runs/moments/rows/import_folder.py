"""The cache: run folders into which files of other loggers are imported, segment by segment, up to a size."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import orjson
import pyarrow as pa

from ....hub.segment_file import sorted_by_step, write_segment
from ....protocol import (
    PARTIAL,
    SEALED,
    STREAMS,
    make_run_folder,
    replace_file,
    segment_name,
    shown_text,
    stream_schema,
    stream_segments,
)
from ...errors import ClientError
from ...recorded_arrow import DAMAGE
from ...storage import cache_home
from ..source import MomentRows
from .pieces import Piece
from .recorded_rows import SealedFile

_BYTES = "MEGALENS_CACHE_BYTES"
_DEFAULT_BYTES = 20 * 1024**3
_IN_USE_SECONDS = 3600.0
_FORMAT = 2
_STREAM = STREAMS["moments"]
_MEMBER = b"megalens.source"
_ORPHAN_SECONDS = 3600.0
# Rows in memory are sealed when their text is so large, or this share of what is sealed: the next process
# reads no more than that again.
_LEAST_BYTES, _MOST_BYTES, _SHARE = 1 << 16, 6 << 20, 8

_WORDS = pa.dictionary(pa.int32(), pa.utf8())
ROWS = pa.schema(
    field.with_type(_WORDS) if pa.types.is_string(field.type) else field for field in stream_schema("moments")
)
"""The stream's columns, texts as dictionaries."""

Source = TypeVar("Source")


def cache_folder() -> Path:
    """Return the folder of parsed files."""
    return cache_home() / "moments"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process, where the system can; other processes wait.

    A lock only spares the second process the same work: the files are consistent at every moment without it.
    """
    for made in (cache_folder(), folder):
        make_run_folder(made, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / "lock").open("w") as file:
        with contextlib.suppress(OSError):
            # A file system without locks.
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def trim_cache(keep: Path | None = None) -> int:
    """Remove the least recently used entries beyond ``$MEGALENS_CACHE_BYTES`` (20 GiB), and return the bytes
    that are left.

    Entries used within the last hour stay, since another process may be reading them, and so does ``keep``.
    """
    try:
        limit = int(os.environ.get(_BYTES, ""))
    except ValueError:
        limit = _DEFAULT_BYTES
    entries = []
    for entry in cache_folder().glob("??/*"):
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
            entries.append(((entry / "used").stat().st_mtime, size, entry))
    total = sum(size for _, size, _ in entries)
    for used, size, entry in sorted(entries):
        if total <= limit:
            break
        if entry == keep or time.time() - used < _IN_USE_SECONDS:
            continue
        shutil.rmtree(entry, ignore_errors=True)
        total -= size
    return total


class SealedPart(NamedTuple, Generic[Source]):
    """A segment, with what it says of where its rows come from."""

    path: Path
    source: Source
    pieces: list[Piece]


class ImportFolder(Generic[Source]):
    """What is imported of one path. The caller holds the lock of :attr:`folder` while it adds to it.

    ``read_source`` makes a source of its JSON, or raises ``ValueError``, ``TypeError`` or ``KeyError``.
    """

    def __init__(self, of: Path, read_source: Callable[[bytes], Source]) -> None:
        key = hashlib.sha256(f"{_FORMAT}\0{os.path.abspath(of)}".encode(errors="surrogateescape")).hexdigest()
        self.folder = cache_folder() / key[:2] / key
        self.sealed: list[SealedPart[Source]] = []
        self._name, self._read_source = of.name, read_source
        self._number = 0

    def take(self, source: Source) -> bool:
        """Take over what a segment says of its source; return False where it does not go on from there."""
        raise NotImplementedError

    def forget(self) -> None:
        """Forget all that was read."""
        self.sealed = []

    def load(self) -> bool:
        """Take over what another process has sealed; return whether that was anything else."""
        try:
            listed = stream_segments(self.folder, _STREAM.name)
        except OSError:
            listed = []
        self._number = max([self._number, *(segment.number + 1 for segment in listed)])
        paths = [segment.path for segment in listed if segment.sealed]
        if paths == [part.path for part in self.sealed]:
            return False
        self.forget()
        for path in paths:
            try:
                part = self._part(path)
                if not self.take(part.source):
                    break
            except (*DAMAGE, ClientError, KeyError):
                # Damaged, or evicted meanwhile: it is read anew from here on.
                break
            self.sealed.append(part)
        with contextlib.suppress(OSError):
            # What was used last is evicted last.
            (self.folder / "used").touch()
        return True

    def prepare(self) -> None:
        """Make the run folder, and remove what does not count in it: of a replaced source, or of a killed
        process.
        """
        home = self.folder / _STREAM.name
        home.mkdir(parents=True, exist_ok=True)
        counting = {part.path for part in self.sealed}
        for path in home.iterdir():
            with contextlib.suppress(OSError):
                # Without locks another process may be writing it.
                young = path.name.endswith(PARTIAL) and time.time() - path.stat().st_mtime < _ORPHAN_SECONDS
                if path not in counting and not young:
                    path.unlink()
        if not (self.folder / "run.json").is_file():
            run = {"id": self.folder.name, "name": shown_text(self._name, 200), "started": time.time()}
            replace_file(self.folder / "run.json", orjson.dumps({"format": 2, "run": run}))

    def commit(self, partial: str, first_step: int) -> None:
        """Have a segment that :func:`write_part` wrote count."""
        home = self.folder / _STREAM.name
        path = home / segment_name(self._number, first_step, SEALED)
        os.replace(home / partial, path)
        self._number += 1
        self.sealed.append(self._part(path))

    def _part(self, path: Path) -> SealedPart[Source]:
        import pyarrow.parquet as pq

        source = self._read_source((pq.read_metadata(path).metadata or {})[_MEMBER])
        return SealedPart(path, source, SealedFile(path, path.stat()).pieces)


def is_much(size: int, sealed: int) -> bool:
    """Whether text of so many bytes is worth a segment, beside what is sealed."""
    return not sealed or size >= max(_LEAST_BYTES, min(_MOST_BYTES, sealed // _SHARE))


def write_part(rows: pa.Table, source: bytes, folder: Path) -> tuple[str, int]:
    """Write a segment that does not count yet, and return its name and first step."""
    name = f"{uuid.uuid4().hex}{SEALED}{PARTIAL}"
    schema = rows.schema.with_metadata({_MEMBER: source})
    rows = sorted_by_step(rows)
    with (folder / _STREAM.name / name).open("wb") as file:
        write_segment(file, _STREAM, schema, [rows])
        file.flush()
        os.fsync(file.fileno())
    return name, rows["step"][0].as_py() if rows.num_rows else 0


class ImportedRows(MomentRows):
    """The rows of one run, of which all files are imported; a refresh says which pieces count."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[Piece] = []

    def pieces(self) -> list[Piece]:
        return self._pieces

    def close(self) -> None:
        self._count([], [])

    def _count(self, pieces: list[Piece], warnings: list[str]) -> None:
        self._pieces, self.warnings = pieces, warnings
        self._changed()
