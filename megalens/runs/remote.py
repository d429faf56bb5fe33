"""Recordings on other storage: a run folder at an address has a mirror in the cache, filled as it is read.

A sealed segment never changes, so what was fetched once stays; of the rest only what is new or grew is
fetched again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
from pathlib import Path, PurePosixPath
from typing import Any

from ..protocol import PARTIAL, SEALED, TAIL, make_run_folder, parse_json, replace_file
from .errors import ClientError
from .query import Query
from .recorded_arrow import DAMAGE
from .recorded_parquet import opened_parquet
from .storage import HEADER, Progress, cache_home, in_parallel, listed, open_storage, own_files, tried

_STATE = ".mirror.json"
# Of a sealed segment the end alone is fetched first where a question is of some steps; smaller ones whole.
_END_BYTES, _LEAST_WHOLE, _MOST_END = 64 << 10, 512 << 10, 64 << 20

_lock = threading.Lock()
_mirrors: dict[Path, _Mirror] = {}


def mirrored(address: str, progress: Progress | None = None) -> Path:
    """Look what a run there has, and return the folder into which its streams are fetched once they are read.

    Parameters
    ----------
    address : str
        Of the run folder. Credentials come from the environment and the storage's own configuration.
    progress : callable, optional
        Called with (bytes done, bytes in all, what is being done); raise from it to cancel.

    Raises
    ------
    ClientError
        ``bad-parameter`` for an address with a password, or whose package is missing; ``not-found`` where
        there is no run; ``unreadable`` where the storage refuses, ``disconnected`` where it fails five times.
    """
    open_storage(address)
    key = hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:24]
    home = cache_home() / "remote" / key
    make_run_folder(home, exist_ok=True)
    mirror = _Mirror(home, address)
    mirror.look(progress)
    with _lock:
        _mirrors[home] = mirror
    return mirror.folder


def bring(folder: Path, stream: str, query: Query | None = None, *, newest: int | None = None) -> None:
    """Fetch what a question needs of a stream where the folder is a mirror's: files that may have its steps.

    ``newest`` fetches the tails and so many of the newest segments. Raises ``ClientError`` as
    :func:`mirrored`.
    """
    mirror = _mirror_of(folder)
    if mirror is not None:
        mirror.bring(folder, stream, query, newest)


def bytes_there(folder: Path) -> int | None:
    """Return what the run has where its mirror's address is; None of a folder that is no mirror."""
    mirror = _mirror_of(folder)
    return None if mirror is None else mirror.bytes_of(folder)


def _mirror_of(folder: Path) -> _Mirror | None:
    remote = cache_home() / "remote"
    if not str(folder).startswith(f"{remote}{os.sep}"):
        return None
    home = remote / folder.relative_to(remote).parts[0]
    with _lock:
        if home not in _mirrors:
            # Another process opened it.
            about = _state_of(home)
            if not isinstance(about.get("address"), str):
                return None
            _mirrors[home] = _Mirror(home, about["address"])
        return _mirrors[home]


class _Mirror:
    """A folder of the cache, and what is known of the run folder that it is of. Any thread may ask."""

    def __init__(self, home: Path, address: str) -> None:
        self._home, self._address = home, address.rstrip("/")
        self._storage, self._root = open_storage(address)
        self.folder = home / (PurePosixPath(self._root).name or "run")
        self._lock = threading.RLock()
        about = _state_of(home)
        self._files: dict[str, tuple[int, str]] = {
            name: (size, stamp) for name, (size, stamp) in about.get("files", {}).items()
        }
        self._ends: dict[str, list[int]] = about.get("ends", {})
        self._here: dict[str, str] = about.get("here", {})

    def look(self, progress: Progress | None = None) -> None:
        """List what there is, fetch what describes it, and remove what is gone there."""
        with self._lock:
            self._files = listed(self._storage, self._root, self._address)
            make_run_folder(self.folder, exist_ok=True)
            headers = [name for name in self._files if PurePosixPath(name).name == HEADER]
            for name in headers:
                make_run_folder((self.folder / name).parent, exist_ok=True)
            self._fetch(headers, progress)
            for name, path in list(own_files(self.folder)):
                # Given up there, or sealed under another name.
                if name not in self._files:
                    path.unlink(missing_ok=True)

    def bytes_of(self, folder: Path) -> int:
        within = self._within(folder)
        names = {name: name.removeprefix(within) for name in self._files if name.startswith(within)}
        skipped = ("run.json", "attempts/")
        return sum(self._files[name][0] for name, own in names.items() if not own.startswith(skipped))

    def bring(self, folder: Path, stream: str, query: Query | None, newest: int | None) -> None:
        with self._lock:
            for again in (False, True):
                names = self._chosen(f"{self._within(folder)}{stream}", query, newest)
                try:
                    self._fetch(names, None)
                    return
                except ClientError as error:
                    if again or not isinstance(error.__cause__, FileNotFoundError):
                        raise
                    # A tail was sealed there, or the oldest segments were given up.
                    self.look()

    def _within(self, folder: Path) -> str:
        within = folder.relative_to(self.folder).as_posix()
        return "" if within == "." else f"{within}/"

    def _chosen(self, start: str, query: Query | None, newest: int | None) -> list[str]:
        names = sorted(name for name in self._files if name.startswith((f"{start}.", f"{start}/")))
        names = [name for name in names if not name.endswith(PARTIAL)]
        sealed = [name for name in names if name.endswith(SEALED)]
        if newest is not None:
            return [*(name for name in names if name.endswith(TAIL)), *sealed[max(0, len(sealed) - newest) :]]
        if query is None or (query.first is None and query.last is None):
            return names
        self._look_at_ends([name for name in sealed if not self._is_here(name)])
        return [name for name in names if self._may_have(name, query)]

    def _may_have(self, name: str, query: Query) -> bool:
        low, high = self._ends.get(name, (query.first or 0, query.first or 0))
        return (query.last is None or low <= query.last) and (query.first is None or high >= query.first)

    def _look_at_ends(self, names: list[str]) -> None:
        """Learn the steps of sealed segments from their footers: in a file with only the end of each."""
        unknown = [name for name in names if name not in self._ends and self._files[name][0] > _LEAST_WHOLE]
        if not unknown:
            return

        def look(name: str) -> int:
            size = self._files[name][0]
            end = self._bytes(name, size - _END_BYTES, size)
            footer = int.from_bytes(end[-8:-4], "little") + 8
            if len(end) < footer <= min(size, _MOST_END):
                end = self._bytes(name, size - footer, size)
            with tempfile.NamedTemporaryFile(dir=self._home, prefix=".end-") as file:
                file.write(b"PAR1")
                file.seek(size - len(end))
                file.write(end)
                file.flush()
                try:
                    with opened_parquet(Path(file.name)) as parquet:
                        self._ends[name] = list(parquet.steps() or (0, -1))
                except (ClientError, *DAMAGE):
                    # Its footer does not say it, or it is damaged, which the reading of the whole file says.
                    return 0
            return len(end)

        in_parallel(look, unknown, 0, None, "")
        self._write_state()

    def _bytes(self, name: str, begin: int, end: int) -> bytes:
        def read() -> bytes:
            return bytes(self._storage.cat_file(f"{self._root}/{name}", start=begin, end=end))

        data: bytes = tried(read, f"{self._address}/{name}")
        return data

    def _is_here(self, name: str) -> bool:
        size, stamp = self._files[name]
        try:
            there = self.folder.joinpath(name).stat().st_size == size
        except OSError:
            return False
        # A segment without a stamp was fetched by another process. What is no segment may have changed.
        return there and self._here.get(name, stamp if name.endswith(SEALED) else "") == stamp

    def _fetch(self, names: list[str], progress: Progress | None) -> None:
        wanted = [name for name in names if not self._is_here(name)]
        if not wanted:
            return
        needed, free = sum(self._files[name][0] for name in wanted), shutil.disk_usage(self._home).free
        if needed > free:
            raise ClientError(
                f"{self._address} has {needed:,} bytes that are not here yet, and {free:,} are free in "
                f"{self._home}. Set MEGALENS_CACHE_DIR to a larger disk.",
                code="too-large",
            )

        def fetch(name: str) -> int:
            target = self.folder / name
            tried(lambda: _fetch(self._storage, f"{self._root}/{name}", target), f"{self._address}/{name}")
            self._here[name] = self._files[name][1]
            return self._files[name][0]

        try:
            in_parallel(fetch, wanted, needed, progress, f"Fetching {self._address}")
        finally:
            self._write_state()

    def _write_state(self) -> None:
        here = {name: stamp for name, stamp in self._here.items() if name in self._files}
        ends = {name: steps for name, steps in self._ends.items() if name in self._files}
        state = {"address": self._address, "files": self._files, "ends": ends, "here": here}
        replace_file(self._home / _STATE, json.dumps(state).encode())


def _fetch(storage: Any, path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f".{target.name}.{os.getpid()}.fetched")
    try:
        storage.get_file(path, str(half))
        os.replace(half, target)
    finally:
        half.unlink(missing_ok=True)


def _state_of(home: Path) -> dict[str, Any]:
    try:
        state = parse_json((home / _STATE).read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}
