"""Opening files of folders that others may write to."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Any, BinaryIO

from .plain_json import parse_json

__all__ = ["open_plain", "read_json_file", "replace_file"]


def replace_file(path: Path, content: bytes, *, mode: int = 0o666, sync: bool = False) -> None:
    """Put a file in the place of another, in one go.

    It is written under another name in the same folder first: a dot, the file's name, another dot and eight hexadecimal digits. That is removed where the
    writing fails, and left where the process is killed.

    Parameters
    ----------
    path : Path
        The file, which need not be there.
    content : bytes
        All that it shall hold.
    mode : int
        Of the file, before the process's mask.
    sync : bool
        Whether its bytes shall be on the disk before it takes the place.

    Raises
    ------
    OSError
        When the disk is full or fails, or the folder cannot be written; the file is then as it was.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def open_plain(path: str | os.PathLike[str], buffering: int = -1) -> BinaryIO:
    """Open a file for reading if it is a plain one: a link could lead out of its folder, and a pipe or a device would never end.

    Parameters
    ----------
    path : str or path
        The file.
    buffering : int
        As of :func:`open`.

    Raises
    ------
    OSError
        When it is not, or cannot be opened; ``strerror`` says which.
    """
    try:
        # Opening a pipe would wait for its other end.
        flags = (
            os.O_RDONLY
            | getattr(os, "O_NOFOLLOW", 0)
            | getattr(os, "O_NONBLOCK", 0)
            | getattr(os, "O_BINARY", 0)
        )
        descriptor = os.open(path, flags)
    except OSError as error:
        # What a link and a socket are answered with says nothing to a person.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EMLINK):
            raise _no_plain_file(path) from error
        raise
    except ValueError as error:
        raise OSError(errno.EINVAL, "its name holds a character that no path can have", str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_plain_file(path)
    return os.fdopen(descriptor, "rb", buffering=buffering)


def read_json_file(path: str | os.PathLike[str], most_bytes: int) -> Any:
    """Return the value of a small JSON file.

    Raises
    ------
    OSError
        When it cannot be read or is no plain file.
    ValueError
        When it is larger than ``most_bytes``, or what :func:`parse_json` refuses.
    """
    with open_plain(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"it must be at most {most_bytes:,} bytes long")
    return parse_json(data)


def _no_plain_file(path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EINVAL, "it must be a plain file, and is a link, a folder or a device", str(path))
