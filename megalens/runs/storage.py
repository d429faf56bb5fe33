"""Other storage by fsspec, and the cache: listing a run folder there, trying again, several files at once."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from platformdirs import user_cache_path

from ..protocol import is_stream_file, make_run_folder, parse_json, replace_file, shown_text
from .errors import ClientError, bad_parameter

HEADER = "run.json"
Known = TypeVar("Known")
Progress = Callable[[int, int, str], object]
"""Called with (bytes done, bytes in all, what is being done); raise from it to cancel."""
_FOLDER = "MEGALENS_CACHE_DIR"
_MOST_FILES = 200_000
_AT_ONCE = 8
_TRIES, _FIRST_WAIT = 5, 0.25
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{1,20}")
_KINDS = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "hf": "huggingface_hub",
}


def cache_home() -> Path:
    """Return the folder of all caches: ``$MEGALENS_CACHE_DIR``, else the user's own for ``megalens``."""
    chosen = os.environ.get(_FOLDER)
    return Path(chosen) if chosen else user_cache_path("megalens")


def cache_file(kind: str, home: Path) -> Path:
    """Return the file of a cache of that kind about a folder, whose path tells it from others."""
    key = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:24]
    return cache_home() / kind / f"{key}.json"


class KeptRuns:
    """What a file of a cache says of run folders, as JSON. Lost or damaged it says nothing."""

    _FORMAT = 1

    def __init__(self, kind: str, home: Path) -> None:
        self._file = cache_file(kind, home)

    def read(self, of: Callable[[str, Any], Known]) -> dict[str, Known]:
        """Return what it says by path, as ``of`` makes it of path and JSON."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            told = parse_json(self._file.read_bytes())
            if told["format"] == self._FORMAT:
                return {path: of(path, each) for path, each in told["runs"].items()}
        return {}

    def write(self, told: Mapping[str, Any]) -> None:
        # Where there is the tracer alone, nobody reads runs.
        import orjson

        # All is as good without it: a full or foreign disk is no error.
        with suppress(OSError):
            make_run_folder(self._file.parent, exist_ok=True)
            replace_file(self._file, orjson.dumps({"format": self._FORMAT, "runs": dict(told)}), mode=0o600)


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return whether this is an address on other storage such as ``s3://bucket/run``; no run's, no path."""
    scheme, there, _ = path.partition("://") if isinstance(path, str) else ("", "", "")
    return (
        bool(there) and _SCHEME.fullmatch(scheme) is not None and scheme not in ("file", "ssh", "ws", "wss")
    )


def check_address(address: str) -> str:
    """Return the scheme of an address that may be used; asks nobody. Raises ``ClientError``.

    ``bad-parameter`` for one with a password or a query, one that chains others, and one whose package is
    not installed.
    """
    parts = urlsplit(address)
    if "::" in address:
        raise bad_parameter(f"{address!r:.200} chains addresses, which is not supported.")
    if parts.password is not None or parts.query:
        raise bad_parameter(
            "An address must hold no password and no query: credentials come from the environment or the "
            "storage's own configuration.",
            "path",
        )
    for package in ("fsspec", _KINDS.get(parts.scheme, "fsspec")):
        if importlib.util.find_spec(package) is None:
            raise _lacks(parts.scheme, package)
    return parts.scheme


def _lacks(scheme: str, package: str) -> ClientError:
    words = f"{scheme}:// needs {package}. Install it beside megalens[remote]."
    return bad_parameter(words, "path")


def open_storage(address: str) -> tuple[Any, str]:
    """Return the storage that an address is of, and the path there; raises as :func:`check_address`."""
    scheme = check_address(address)
    try:
        from fsspec.core import url_to_fs

        storage, root = url_to_fs(address)
    except ImportError as error:
        raise _lacks(scheme, "the package that fsspec names for it") from error
    except Exception as error:
        raise bad_parameter(f"{address!r:.200} cannot be used: {_words(error)}") from error
    return storage, str(root).rstrip("/")


def listed(storage: Any, root: str, address: str, missing: bool = False) -> dict[str, tuple[int, str]]:
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
    for path, info in tried(find, address).items():
        name = str(path)[len(root) :].lstrip("/") if str(path).startswith(root) else ""
        if not is_recorded(name) or len(found) >= _MOST_FILES:
            continue
        size = int(info.get("size") or 0)
        marks = [info.get(each) for each in ("ETag", "etag", "mtime", "LastModified", "last_modified")]
        found[name] = (size, f"{size} {next((str(mark) for mark in marks if mark), '')}"[:200])
    if HEADER not in found and not missing:
        raise ClientError(
            f"There is no run at {address}: it has no run.json. Give the address of one run folder.",
            code="not-found",
            field="path",
        )
    return found


def is_recorded(name: str) -> bool:
    parts = name.split("/")
    if parts[0] == "attempts" and len(parts) > 2 and parts[1].isdecimal():
        parts = parts[2:]
    if len(parts) == 1:
        stem, _, suffix = parts[0].partition(".")
        return parts[0] == HEADER or (
            re.fullmatch(r"\w{1,100}", stem) is not None and suffix in ("parquet", "arrows")
        )
    return len(parts) == 2 and re.fullmatch(r"\w{1,100}", parts[0]) is not None and is_stream_file(parts[1])


def stays(name: str) -> bool:
    return name.endswith((".parquet", ".layers"))


def own_files(folder: Path) -> Iterable[tuple[str, Path]]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and is_recorded(name):
            yield name, path


def in_parallel(
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


def tried(work: Callable[[], Any], what: str) -> Any:
    for turn in range(_TRIES):
        try:
            return work()
        except (PermissionError, FileNotFoundError) as error:
            raise ClientError(f"{what} cannot be used: {_words(error)}", code="unreadable") from error
        except Exception as error:
            # A library's own: of the network, of HTTP, of a cut answer.
            if turn == _TRIES - 1:
                raise ClientError(
                    f"{what} could not be reached {_TRIES} times: {_words(error)}", code="disconnected"
                ) from error
            time.sleep(_FIRST_WAIT * 2**turn)
    raise AssertionError


def _words(error: BaseException) -> str:
    return shown_text(f"{type(error).__name__}: {error}", 300)
