"""Who may read a run folder. What is written into one takes its mode, whatever the process's mask is."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["RECORD_MODE", "is_record_mode", "make_run_folder", "make_subfolder", "new_file_mode", "take_mode"]

RECORD_MODE = "a mode of a folder that its owner may use, such as 0o750"


def is_record_mode(value: object) -> bool:
    """Whether a value is a mode that a run folder can have: permissions alone, all of the owner's there."""
    return isinstance(value, int) and not isinstance(value, bool) and 0o700 <= value <= 0o777


def make_run_folder(path: Path, mode: int | None = None, *, exist_ok: bool = False) -> None:
    """Make a run folder, and the folders above it where they lack.

    Parameters
    ----------
    mode : int, optional
        Its permissions. When absent the folder is its owner's alone, unless the folder that it is made in has
        the setgid bit, by which people say that a group shares it: the group may then read what it may read
        there. A folder that exists stays as it is.

    Raises
    ------
    OSError
        When it cannot be made, or exists unless ``exist_ok``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    above = path.parent.stat().st_mode
    if mode is None:
        mode = 0o700 | (above & 0o050 if above & stat.S_ISGID else 0)
    _make(path, mode, exist_ok)


def make_subfolder(path: Path) -> None:
    """Make a folder within a run folder, as open as the one that it is made in; fine where it exists."""
    _make(path, stat.S_IMODE(path.parent.stat().st_mode) & 0o777, True)


def new_file_mode(folder: Path | int) -> int:
    """Return the mode of a new file in a folder, which is a path or a descriptor: that of the folder, without
    the right to execute. Raises ``OSError``.
    """
    return stat.S_IMODE(os.stat(folder).st_mode) & 0o666


def take_mode(file: Path | int, mode: int) -> None:
    """Give a new file its mode where the process's mask took some of it, and the file system has modes."""
    with suppress(OSError, NotImplementedError):
        if stat.S_IMODE(os.stat(file).st_mode) != mode:
            os.chmod(file, mode)


def _make(path: Path, mode: int, exist_ok: bool) -> None:
    try:
        # Never more open than it will be, not for a moment.
        path.mkdir(mode)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
        return
    # The setgid bit comes from the folder above.
    take_mode(path, mode | (path.stat().st_mode & stat.S_ISGID))
