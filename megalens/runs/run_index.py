"""What many run folders hold, known from an index of their ``run.json`` that is kept beside the caches.

A list of thousands of runs looks at each folder for microseconds: a ``run.json`` is read again only when it
changed. The index may be lost or damaged: then all are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..protocol import (
    ProtocolError,
    check_definition,
    is_stream_file,
    read_json_file,
)
from ..protocol.messages_generated import RunNotes
from .errors import ClientError
from .run_folder import RunFolder
from .storage import HEADER, KeptRuns

NOTES_FILE = "notes.json"
_MOST_NOTES = 128 * 1024
# A growing run's header changes every few seconds: the index is written once this share of it is new.
_SHARE = 50
_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class ListedRun:
    """What a list says of a recording; ``earlier`` are its earlier attempts, oldest first.

    ``superseded`` marks an earlier attempt, ``lost`` one whose training went without saying that it ended.
    """

    path: Path
    id: str
    name: str
    started: float
    ended: float | None
    lost: bool
    finished: bool
    step: int
    superseded: bool
    earlier: tuple[ListedRun, ...] = ()

    @property
    def closed(self) -> bool:
        """Whether the recording was closed. One that was not may still be growing, or its hub is gone."""
        return self.ended is not None

    @classmethod
    def of(cls, folder: RunFolder) -> ListedRun:
        return cls(
            folder.path,
            folder.id,
            folder.name,
            folder.started,
            folder.ended,
            folder.header.get("state") == "lost",
            folder.state == "finished",
            folder.step,
            "superseded_from" in folder.header,
            tuple(cls.of(part) for part, _ in folder.earlier),
        )

    @classmethod
    def read(cls, path: Path, told: Mapping[str, Any]) -> ListedRun:
        earlier = tuple(cls.read(path / "attempts" / each.pop("at"), each) for each in told["earlier"])
        return cls(**{**told, "path": path, "earlier": earlier})

    def told(self) -> dict[str, Any]:
        found = asdict(self)
        del found["path"]
        return {**found, "earlier": [{**each.told(), "at": each.path.name} for each in self.earlier]}


class _IndexEntry(NamedTuple):
    stamp: _Stamp
    run: ListedRun | ClientError
    # What it takes on the disk, as long as its folders are as new as that.
    bytes: int = 0
    newest: int = -1


class RunIndex:
    """The recordings right below some folders. One thread at a time may ask.

    Parameters
    ----------
    home : Path
        The folder that the index is of, whose name tells it from others in the cache.
    """

    def __init__(self, home: Path) -> None:
        self._file = KeptRuns("lists", home)
        self._known: dict[str, _IndexEntry] | None = None
        self._fresh = 0
        self._seen: set[str] = set()

    def run(self, path: Path) -> ListedRun | None:
        """Return the recording in a folder; None where there is none.

        Raises ``ClientError`` for one that cannot be read, ``OSError`` for one that may not be looked into.
        """
        stamp = file_stamp(path / HEADER)
        if stamp is None:
            return None
        known = self._entries().get(str(path))
        self._seen.add(str(path))
        if known is None or known.stamp != stamp:
            run: ListedRun | ClientError
            try:
                run = ListedRun.of(RunFolder(path))
            except ClientError as error:
                run = error
            known = self._entries()[str(path)] = _IndexEntry(stamp, run)
            self._fresh += 1
        if isinstance(known.run, ClientError):
            raise known.run
        return known.run

    def bytes(self, run: ListedRun) -> int:
        """Return what a recording takes on the disk; of a closed one as it was, until files come or go."""
        known = self._entries().get(str(run.path))
        if known is None or not run.closed:
            return recording_bytes(run.path)
        newest = _newest_change(run.path)
        if known.newest != newest:
            known = known._replace(bytes=recording_bytes(run.path), newest=newest)
            self._entries()[str(run.path)] = known
            self._fresh += 1
        return known.bytes

    def forget(self, path: Path) -> None:
        self._entries().pop(str(path), None)

    def save(self) -> None:
        """Write what is new, once it is much: another process then reads it in place of the folders."""
        entries = self._entries()
        if not self._fresh or self._fresh * _SHARE < len(entries):
            return
        told = {
            path: [" ".join(map(str, [*known.stamp, known.newest])), known.run.told(), known.bytes]
            for path, known in entries.items()
            if path in self._seen and isinstance(known.run, ListedRun)
        }
        self._file.write(told)
        self._fresh = 0

    def _entries(self) -> dict[str, _IndexEntry]:
        if self._known is None:
            self._known = self._file.read(_entry_of)
        return self._known


def _entry_of(path: str, told: Any) -> _IndexEntry:
    stamp, run, taken = told
    # As text, since nanoseconds are more than a number in JSON may be.
    at, size, changed, newest = map(int, stamp.split())
    return _IndexEntry((at, size, changed), ListedRun.read(Path(path), run), taken, newest)


def _newest_change(folder: Path) -> int:
    """Return when a file last came into a folder or one of its own, or went."""
    try:
        with os.scandir(folder) as entries:
            within = [entry.stat() for entry in entries if entry.is_dir(follow_symlinks=False)]
        return max(each.st_mtime_ns for each in [os.stat(folder), *within])
    except OSError:
        return -1


def file_stamp(file: Path) -> _Stamp | None:
    """Return what changes with a file; None where there is none."""
    try:
        info = os.lstat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # The last one is that of a change of permissions, too.
    return info.st_mtime_ns, info.st_size, info.st_ctime_ns


def read_notes(folder: Path) -> RunNotes:
    """Return what a person wrote about a run.

    Raises ``ValueError`` for a file against the schema, ``OSError`` where there is none or no plain file.
    """
    notes: RunNotes = read_json_file(folder / NOTES_FILE, _MOST_NOTES)
    try:
        check_definition("RunNotes", notes, NOTES_FILE)
    except ProtocolError as error:
        raise ValueError(error.message) from error
    return notes


def recording_bytes(folder: Path) -> int:
    """Return the bytes of plain files in a folder and its streams' folders; links are not followed."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    with os.scandir(entry) as files:
                        total += sum(_plain_bytes(file) for file in files if is_stream_file(file.name))
                else:
                    total += _plain_bytes(entry)
    return total


def _plain_bytes(entry: os.DirEntry[str]) -> int:
    try:
        # A tail that was sealed a moment ago is there no more.
        return entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
    except FileNotFoundError:
        return 0
