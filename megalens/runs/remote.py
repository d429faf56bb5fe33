"""Recordings on other storage: a run folder at an address is mirrored into the cache, or written there.

A sealed segment never changes, so what was fetched once stays; only what is new or grew is fetched again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..protocol import is_stream_file, make_run_folder, parse_json, shown_text
from .errors import ClientError
from .moments.rows.import_folder import cache_home

if TYPE_CHECKING:
    from .moments import Progress

_HEADER = "run.json"
_STATE = ".mirror.json"
_MOST_FILES = 200_000
_AT_ONCE = 8
_TRIES, _FIRST_WAIT = 5, 0.25
_KINDS = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "hf": "huggingface_hub",
}


def mirrored(address: str, progress: Progress | None = None) -> Path:
    """Bring a run folder's files here, or what is new of them, and return the folder that has them.

    Parameters
    ----------
    address : str
        Of the run folder. Credentials come from the environment and the storage's own configuration.
    progress : callable, optional
        Called with (bytes done, bytes in all, what is being done); raise from it to cancel. What is here by
        then stays.

    Raises
    ------
    ClientError
        ``bad-parameter`` for an address with a password, or whose package is missing; ``not-found`` where
        there is no run; ``unreadable`` where the storage refuses or fails five times.
    """
    storage, root = _storage(address)
    files = _listed(storage, root, address)
    key = hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:24]
    home = cache_home() / "remote" / key
    folder = home / (PurePosixPath(root).name or "run")
    for made in (home, folder):
        make_run_folder(made, exist_ok=True)
    known = _known(home)
    wanted = {
        name: stamp
        for name, (_, stamp) in files.items()
        if known.get(name) != stamp or not (folder / name).is_file()
    }
    free = shutil.disk_usage(folder).free
    needed = sum(files[name][0] for name in wanted)
    if needed > free:
        raise ClientError(
            f"{address} has {needed:,} bytes that are not here yet, and {free:,} are free in {home}. "
            "Set MEGALENS_CACHE_DIR to a larger disk.",
            code="too-large",
        )
    rows = sorted(wanted.keys() - {_HEADER}, key=lambda name: files[name][0])

    def fetch(name: str) -> int:
        _tried(lambda: _fetch(storage, f"{root}/{name}", folder / name), f"{address.rstrip('/')}/{name}")
        known[name] = wanted[name]
        return files[name][0]

    try:
        _in_parallel(fetch, rows, needed, progress, f"Fetching {address}")
        # What says what there is comes last, so that a half mirror never says that it is whole.
        _in_parallel(fetch, [_HEADER] if _HEADER in wanted else [], needed, None, "")
    finally:
        _write_known(home, known)
    for name, path in list(_own_files(folder)):
        # Given up there, or sealed under another name. What another process is fetching has no such name.
        if name not in files:
            path.unlink(missing_ok=True)
    return folder


class Upload:
    """Writes a run folder to an address, as often as it is asked, each file once it is as it stays.

    Parameters
    ----------
    folder : path
        The run folder, which may be growing.
    address : str
        The folder that is to hold it: ``s3://bucket/runs`` gets ``s3://bucket/runs/<name of the folder>``.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self.address = f"{address.rstrip('/')}/{folder.name}"
        self._storage, self._root = _storage(self.address)
        self._sent: dict[str, tuple[int, int]] = {}

    def send(self, whole: bool = False, progress: Progress | None = None) -> int:
        """Send what is new and return its bytes: sealed segments, and with ``whole`` everything.

        A sealed segment that is there already, with the same size, is not sent again: another process, or
        this one before the network broke, did that. Raises ``ClientError`` (``unreadable``) where the storage
        fails; what was sent stays, and the next call goes on.
        """
        files = {
            name: path for name, path in _own_files(self._folder) if whole or name == _HEADER or _stays(name)
        }
        stamps = {name: stamp for name, path in files.items() if (stamp := _stamp(path))}
        new = {name: stamp for name, stamp in stamps.items() if self._sent.get(name) != stamp}
        if not self._sent:
            there = _listed(self._storage, self._root, self.address, missing=True)
            for name in [name for name in new if _stays(name) and there.get(name, (-1,))[0] == new[name][0]]:
                self._sent[name] = new.pop(name)
        total = sum(size for size, _ in new.values())

        def put(name: str) -> int:
            try:
                self._try(partial(self._storage.put_file, str(files[name]), f"{self._root}/{name}"), name)
            except ClientError:
                if files[name].exists():
                    raise
                # Sealed meanwhile: the next call sends what it became.
                return 0
            self._sent[name] = new[name]
            return new[name][0]

        rows = sorted(new.keys() - {_HEADER}, key=lambda name: new[name][0])
        sent = _in_parallel(put, rows, total, progress, f"Sending to {self.address}")
        # The header after the rows: who reads it there finds all that it says.
        sent += _in_parallel(put, [_HEADER] if _HEADER in new else [], total, progress, "")
        if whole:
            self._drop([name for name in self._sent if not _stays(name) and name not in files])
        return sent

    def _drop(self, tails: list[str]) -> None:
        """Remove tails there whose rows are in the segments that they became."""
        for name in tails:
            with suppress(FileNotFoundError):
                self._try(partial(self._storage.rm_file, f"{self._root}/{name}"), name)
            del self._sent[name]

    def _try(self, work: Callable[[], Any], name: str) -> None:
        _tried(work, f"{self.address}/{name}")


def _storage(address: str) -> tuple[Any, str]:
    parts = urlsplit(address)
    if "::" in address:
        raise ClientError(f"{address!r:.200} chains addresses, which is not supported.", code="bad-parameter")
    if parts.password is not None or parts.query:
        raise ClientError(
            "An address must hold no password and no query: credentials come from the environment or the "
            "storage's own configuration.",
            code="bad-parameter",
            field="path",
        )
    try:
        from fsspec.core import url_to_fs

        storage, root = url_to_fs(address)
    except ImportError as error:
        package = _KINDS.get(parts.scheme, "the package that fsspec names for it")
        raise ClientError(
            f"{parts.scheme}:// needs {package}. Install it beside megalens[remote].",
            code="bad-parameter",
            field="path",
        ) from error
    except Exception as error:
        raise ClientError(
            f"{address!r:.200} cannot be used: {_words(error)}", code="bad-parameter"
        ) from error
    return storage, str(root).rstrip("/")


def _listed(storage: Any, root: str, address: str, missing: bool = False) -> dict[str, tuple[int, str]]:
    """Return the files of a run folder there, each with its size and what changes when it does.

    Names are checked: only those that a recording has are taken, wherever a storage says that they lie.
    """

    def find() -> dict[str, Any]:
        storage.invalidate_cache()
        with suppress(FileNotFoundError):
            found: dict[str, Any] = storage.find(root, detail=True)
            return found
        return {}

    found: dict[str, tuple[int, str]] = {}
    for path, info in _tried(find, address).items():
        name = str(path)[len(root) :].lstrip("/") if str(path).startswith(root) else ""
        if not _is_recorded(name) or len(found) >= _MOST_FILES:
            continue
        size = int(info.get("size") or 0)
        marks = [info.get(each) for each in ("ETag", "etag", "mtime", "LastModified", "last_modified")]
        found[name] = (size, f"{size} {next((str(mark) for mark in marks if mark), '')}"[:200])
    if _HEADER not in found and not missing:
        raise ClientError(
            f"There is no run at {address}: it has no run.json. Give the address of one run folder.",
            code="not-found",
            field="path",
        )
    return found


def _is_recorded(name: str) -> bool:
    parts = name.split("/")
    if parts[0] == "attempts" and len(parts) > 2 and parts[1].isdecimal():
        parts = parts[2:]
    if len(parts) == 1:
        stem, _, suffix = parts[0].partition(".")
        return parts[0] == _HEADER or (
            re.fullmatch(r"\w{1,100}", stem) is not None and suffix in ("parquet", "arrows")
        )
    return len(parts) == 2 and re.fullmatch(r"\w{1,100}", parts[0]) is not None and is_stream_file(parts[1])


def _stays(name: str) -> bool:
    return name.endswith((".parquet", ".layers"))


def _own_files(folder: Path) -> Iterable[tuple[str, Path]]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and _is_recorded(name):
            yield name, path


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        # Sealed meanwhile.
        return None
    return (status.st_size, status.st_mtime_ns)


def _fetch(storage: Any, path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f".{target.name}.{os.getpid()}.fetched")
    try:
        storage.get_file(path, str(half))
        os.replace(half, target)
    finally:
        half.unlink(missing_ok=True)


def _in_parallel(
    work: Callable[[str], int], names: list[str], total: int, progress: Progress | None, words: str
) -> int:
    """Do it with each name, some at once; the first error, or what ``progress`` raises, ends it."""
    done = 0
    with ThreadPoolExecutor(_AT_ONCE, "megalens-remote") as pool:
        waiting: set[Future[int]] = {pool.submit(work, name) for name in names}
        try:
            while waiting:
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                done += sum(each.result() for each in ended)
                if progress is not None:
                    progress(done, total, words)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return done


def _tried(work: Callable[[], Any], what: str) -> Any:
    for turn in range(_TRIES):
        try:
            return work()
        except (PermissionError, FileNotFoundError) as error:
            raise ClientError(f"{what} cannot be used: {_words(error)}", code="unreadable") from error
        except Exception as error:
            # A library's own: of the network, of HTTP, of a cut answer.
            if turn == _TRIES - 1:
                raise ClientError(
                    f"{what} could not be reached {_TRIES} times: {_words(error)}", code="unreadable"
                ) from error
            time.sleep(_FIRST_WAIT * 2**turn)
    raise AssertionError


def _words(error: BaseException) -> str:
    return shown_text(f"{type(error).__name__}: {error}", 300)


def _known(home: Path) -> dict[str, str]:
    try:
        known = parse_json((home / _STATE).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(each) for name, each in known.items()} if isinstance(known, dict) else {}


def _write_known(home: Path, known: dict[str, str]) -> None:
    import json

    half = home / f"{_STATE}.{os.getpid()}"
    half.write_text(json.dumps(known), encoding="utf-8")
    os.replace(half, home / _STATE)
