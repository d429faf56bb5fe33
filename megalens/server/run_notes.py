"""What a person writes about a run: its name in ``run.json``, notes and tags in a file next to it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..protocol import ProtocolError, check_definition, is_stream_file, replace_file
from ..protocol.messages_generated import RunNotes
from ..runs import RunFolder
from ..runs.run_index import NOTES_FILE, file_stamp, read_notes
from .errors import ServerError, require

_RULES = {
    "notes": "notes must be text of at most 10,000 characters.",
    "tags": "tags must be at most 20 different texts of 1 to 50 characters, without commas and line breaks.",
}

_HEADER = "run.json"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Files that a recorder, a packer or this server left half written.
_HALF_WRITTEN = re.compile(r"run\.json\.partial|\.(run|notes)\.json\.[0-9a-f]{8}")


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
    fits = isinstance(name, str) and 1 <= len(name.strip()) <= 200 and name.isprintable()
    require(fits, "A name must be text of 1 to 200 printable characters.", "name")
    return str(name).strip()


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
            known = self._known[folder] = (stamp, None if stamp is None else read_notes(folder))
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
