"""The folder of parsed files, and its size limit."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_cache_path

from ....protocol import make_run_folder

_FOLDER = "MEGALENS_CACHE_DIR"
_BYTES = "MEGALENS_CACHE_BYTES"
_DEFAULT_BYTES = 20 * 1024**3
_IN_USE_SECONDS = 3600.0


def cache_folder() -> Path:
    """Return the cache folder: ``$MEGALENS_CACHE_DIR``, else the user's cache folder for ``megalens``."""
    chosen = os.environ.get(_FOLDER)
    return (Path(chosen) if chosen else user_cache_path("megalens")) / "moments"


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
