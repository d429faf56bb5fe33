"""Writing a file so that its readers see what was there, or all of what is there now."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

__all__ = ["replace_file"]


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
