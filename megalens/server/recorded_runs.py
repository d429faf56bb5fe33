"""The recordings in the run folders."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..protocol import (
    ProtocolError,
    check_definition,
    is_stream_file,
    read_json_file,
    replace_file,
    shown_text,
)
from ..protocol.messages_generated import RunNotes
from ..runs import ClientError, RunFolder
from .errors import ServerError, closed_words

NOTES_FILE = "notes.json"
_MOST_BYTES = 128 * 1024
_RULES = {
    "notes": "notes must be text of at most 10,000 characters.",
    "tags": "tags must be at most 20 different texts of 1 to 50 characters, without commas and line breaks.",
}

_HEADER = "run.json"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Files that a recorder, a packer or this server left half written.
_HALF_WRITTEN = re.compile(r"run\.json\.partial|\.(run|notes)\.json\.[0-9a-f]{8}")


# What a recorded run takes on the disk, and how it is deleted.
def recording_bytes(folder: Path) -> int:
    """Return the bytes of plain files in a folder and its streams' folders; links are not followed."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    with os.scandir(entry) as files:
                        total += sum(_plain_bytes(file) for file in files if is_stream_file(file.name))
                else:
                    total += _plain_bytes(entry)
    return total


def _plain_bytes(entry: os.DirEntry[str]) -> int:
    try:
        info = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        # A tail that was sealed a moment ago.
        return 0
    return info.st_size if stat.S_ISREG(info.st_mode) else 0


def remove_recording(folder: Path, streams: Iterable[str]) -> bool:
    """Delete a recording's own files, and its folder if nothing else is there; return whether that is gone.

    Only names that a recorder writes are deleted, in this very folder and in those of ``streams``: other
    files stay. No link is followed, and the folder itself must not be one. ``run.json`` goes last, so that
    after an interruption the run is still listed and can be deleted. Raises ``ServerError`` 409 when a file
    cannot be deleted.
    """
    named = set(streams)
    ours = {
        f"{stream}{end}" for stream in named for end in (".arrows", ".index", ".parquet", ".parquet.partial")
    }
    ours.add(NOTES_FILE)
    try:
        # By descriptor: whatever replaces the folder, the files are deleted where they were checked.
        directory = os.open(folder, _DIRECTORY)
        try:
            for name in os.listdir(directory):
                if name in named:
                    _delete_stream(name, directory)
                elif name in ours or _HALF_WRITTEN.fullmatch(name):
                    _delete(name, directory)
            _delete(_HEADER, directory)
            left = os.listdir(directory)
        finally:
            os.close(directory)
        if left:
            return False
        folder.rmdir()
    except OSError as error:
        raise ServerError(409, "refused", f"Could not delete the recording: {error.strerror}.") from error
    return True


def _delete_stream(stream: str, run: int) -> None:
    try:
        directory = os.open(stream, _DIRECTORY, dir_fd=run)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return
        raise
    try:
        for name in filter(is_stream_file, os.listdir(directory)):
            _delete(name, directory)
        if os.listdir(directory):
            return
    finally:
        os.close(directory)
    os.rmdir(stream, dir_fd=run)


def _delete(name: str, directory: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            os.unlink(name, dir_fd=directory)


def checked_name(name: Any) -> str:
    """Return a name that somebody gave a run; raises ``ServerError`` 400 for a bad one."""
    if not isinstance(name, str) or not 1 <= len(name.strip()) <= 200 or not name.isprintable():
        raise ServerError(
            400, "bad-parameter", "A name must be text of 1 to 200 printable characters.", "name"
        )
    return name.strip()


class NotesFiles:
    """The notes of the runs, reread after a change. Its methods read files: call them in a worker thread."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int, int] | None, RunNotes | None]] = {}

    def of(self, folder: Path) -> RunNotes | None:
        """Return what was written about a run, or None.

        Raises ``ValueError`` for a file against the schema, ``OSError`` for an unreadable or no plain file.
        """
        stamp = file_stamp(folder / NOTES_FILE)
        known = self._known.get(folder)
        if known is None or known[0] != stamp:
            known = self._known[folder] = (stamp, None if stamp is None else _read(folder / NOTES_FILE))
        return known[1]

    def change(self, folder: Path, changes: dict[str, Any]) -> None:
        """Replace ``notes``, ``tags`` or both, atomically; an unreadable file or a link is replaced, too.

        Raises ``ServerError``: 400 naming the field that is against the schema, 409 when the folder cannot be
        written.
        """
        try:
            known = self.of(folder)
        except (ValueError, OSError):
            known = None
        _replace(folder / NOTES_FILE, _changed(known or {"format": 1, "notes": "", "tags": []}, changes))

    def forget(self, folder: Path) -> None:
        self._known.pop(folder, None)


def file_stamp(file: Path) -> tuple[int, int, int] | None:
    """Return what changes with a file; None where there is none."""
    try:
        info = file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    # The last one is that of a change of permissions, too.
    return info.st_mtime_ns, info.st_size, info.st_ctime_ns


def _read(file: Path) -> RunNotes:
    notes = read_json_file(file, _MOST_BYTES)
    try:
        check_definition("RunNotes", notes, file.name)
    except ProtocolError as error:
        raise ValueError(error.message) from error
    checked: RunNotes = notes
    return checked


def _changed(known: RunNotes, changes: dict[str, Any]) -> RunNotes:
    notes: Any = {**known, **{name: changes[name] for name in ("notes", "tags") if name in changes}}
    if isinstance(notes["tags"], list):
        notes["tags"] = [tag.strip() if isinstance(tag, str) else tag for tag in notes["tags"]]
    try:
        check_definition("RunNotes", notes, "body")
    except ProtocolError as error:
        field = "tags" if (error.field or "").startswith("body.tags") else "notes"
        raise ServerError(400, "bad-parameter", _RULES[field], field) from error
    checked: RunNotes = notes
    return checked


def write_name(folder: RunFolder, name: str) -> None:
    """Write another name into ``run.json``; raises ``ServerError`` 409 when the folder cannot be written."""
    # As it was read a moment ago, with all that a later version put into it.
    _replace(folder.path / "run.json", {**folder.header, "run": {**folder.header["run"], "name": name}})


def _replace(file: Path, value: Any) -> None:
    try:
        replace_file(file, json.dumps(value, ensure_ascii=False, indent=1).encode(), mode=None)
    except OSError as error:
        raise ServerError(409, "refused", f"Could not write the run's folder: {error.strerror}.") from error


class RecordedRuns:
    """The recordings of the run folders. Its methods read files, one thread at a time.

    ``left_out`` has sentences about what the last :meth:`find` left out.
    """

    def __init__(self, root: Path, run_folders: Iterable[str], log: logging.Logger) -> None:
        self.left_out: list[str] = []
        self._root = root
        self._folders = [(root / Path(folder).expanduser()) for folder in run_folders]
        # The administrator may name a link; one inside that leads elsewhere is somebody else's choice.
        self._within = [root, *(folder.resolve() for folder in self._folders)]
        self._log = log
        self._headers: dict[Path, tuple[tuple[int, int, int], RunFolder | ClientError]] = {}

    def find(self, also: Iterable[Path]) -> tuple[dict[str, RunFolder], list[Path]]:
        """Return the recordings by their runs, and the other folders; ``also`` are run folders elsewhere."""
        left_out: list[str] = []
        found: dict[str, RunFolder] = {}
        others = []
        for candidate in [*self._candidates(left_out), *also]:
            try:
                run = self._header(candidate)
            except ClientError as error:
                left_out.append(f"{self.called(candidate)}: {error.message}")
                run = None
            except OSError as error:
                left_out.append(closed_words(self.called(candidate), error))
                continue
            if run is not None:
                found.setdefault(run.id, run)
                for part, _ in run.earlier:
                    found.setdefault(part.id, part)
            else:
                others.append(candidate)
        self.left_out = left_out
        return found, others

    def may_delete(self, folder: Path) -> bool:
        """Whether a folder is inside a run folder, and no link."""
        resolved = folder.resolve()
        return not folder.is_symlink() and resolved not in self._within and self._is_within(resolved)

    def forget(self, folder: Path) -> None:
        self._headers.pop(folder, None)

    def called(self, folder: Path) -> str:
        """Return the folder's name for sentences: its own path, not a link's target."""
        with contextlib.suppress(ValueError):
            folder = folder.relative_to(self._root)
        return shown_text(folder.name if folder.is_absolute() else folder.as_posix(), 200)

    def relative(self, path: Path) -> str | None:
        """Return a folder's path from the root; None for one outside of it, or that cannot be sent."""
        try:
            text = path.resolve().relative_to(self._root).as_posix()
            # A name that is no UTF-8 text cannot be sent.
            text.encode("utf-8")
        except (ValueError, OSError):
            return None
        return text

    def _candidates(self, left_out: list[str]) -> Iterator[Path]:
        """Yield the folders that may have runs, and note those that cannot be read."""
        for folder in self._folders:
            try:
                entries = sorted(folder.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                left_out.append(closed_words(self.called(folder), error))
                continue
            for entry in entries:
                try:
                    if not entry.is_dir():
                        continue
                    if entry.is_symlink() and not self._is_within(entry.resolve()):
                        left_out.append(
                            f"{self.called(entry)} is a link that leads out of the run folders, and is not "
                            "followed."
                        )
                        continue
                    yield entry
                except OSError as error:
                    # A link to an unreadable folder, which hides no other one.
                    left_out.append(closed_words(self.called(entry), error))

    def _is_within(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self._within)

    def _header(self, path: Path) -> RunFolder | None:
        """Return the run of a folder, or None; raises ClientError or OSError where that cannot be known."""
        stamp = file_stamp(path / "run.json")
        if stamp is None:
            return None
        known = self._headers.get(path)
        if known is None or known[0] != stamp:
            try:
                # A growing run's description is rewritten every few seconds; what is known of its files
                # stays.
                older = known[1] if known is not None else None
                run: RunFolder | ClientError = (
                    older.reopened() if isinstance(older, RunFolder) else RunFolder(path)
                )
            except ClientError as error:
                self._log.warning(
                    "Megalens leaves the run folder %s out: %s", shown_text(path.name), shown_text(error)
                )
                run = error
            known = self._headers[path] = (stamp, run)
        if isinstance(known[1], ClientError):
            raise known[1]
        return known[1]
