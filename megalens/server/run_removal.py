"""What a recorded run takes on the disk, and how it is deleted."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from .errors import ServerError
from .run_notes import NOTES_FILE

__all__ = ["recording_bytes", "remove_recording"]

_HEADER = "run.json"
# Files that a recorder, a packer or this server left half written.
_HALF_WRITTEN = re.compile(r"run\.json\.partial|\.(run|notes)\.json\.[0-9a-f]{8}")


def recording_bytes(folder: Path) -> int:
    """Return the bytes of the plain files right in a folder; links are not followed."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                total += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return total


def remove_recording(folder: Path, streams: Iterable[str]) -> bool:
    """Delete a recording's own files, and its folder where nothing else lies there; return whether the folder is gone.

    Only names that a recorder writes are deleted, in this very folder: whatever else somebody put there stays. No link is followed, and the folder itself must not be one. ``run.json``
    goes last, so that what was interrupted is still listed and can be deleted again.

    Parameters
    ----------
    folder : Path
        The run folder.
    streams : iterable of str
        Names of the streams that the recording may have.

    Raises
    ------
    ServerError
        409 when a file cannot be deleted.
    """
    ours = {
        f"{stream}{end}"
        for stream in streams
        for end in (".arrows", ".index", ".parquet", ".parquet.partial")
    }
    ours.add(NOTES_FILE)
    try:
        # Whatever takes the folder's place after this, the files are deleted where they were looked at.
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for name in os.listdir(place):
                if name in ours or _HALF_WRITTEN.fullmatch(name):
                    _delete(name, place)
            _delete(_HEADER, place)
            left = os.listdir(place)
        finally:
            os.close(place)
        if left:
            return False
        folder.rmdir()
    except OSError as error:
        raise ServerError(409, "refused", f"Could not delete the recording: {error.strerror}.") from error
    return True


def _delete(name: str, place: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=place).st_mode):
            os.unlink(name, dir_fd=place)
