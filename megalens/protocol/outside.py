"""Reads what others wrote, with bounds: JSON, texts to show, files in folders that others may write to.

Who may read a run folder. What is written into one takes its mode, whatever the process's mask is.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "MOST_RUN_FILE_BYTES",
    "MOST_WHOLE",
    "RECORD_MODE",
    "RUNS_FOLDER",
    "attempt_folders",
    "is_record_mode",
    "make_run_folder",
    "make_subfolder",
    "new_file_mode",
    "open_plain",
    "parse_json",
    "read_json_file",
    "replace_file",
    "shown_text",
    "take_mode",
]


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


_MOST_DEPTH = 32
_MOST_VALUES = 2_000_000
MOST_WHOLE = 2**53 - 1
"""The largest whole number that a browser's numbers hold, so that every reader can."""
MOST_RUN_FILE_BYTES = 8 * 1024 * 1024
"""Largest ``run.json``."""
RUNS_FOLDER = "megalens-runs"
"""Where recordings lie unless somebody says otherwise, and where the Jupyter server looks for them."""
_MOST_DIGITS = 17
_LONG_NUMBER = re.compile(r"[0-9]{16}")

# C0 but for line feed and tab, DEL and C1, the signs that turn text around, line separators, half characters.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return the value of JSON text in which every number is finite, whole ones at most 2^53 - 1, every text
    whole, every name once.

    Python's parser alone takes ``NaN`` and ``1e999``, integers of 4,300 digits, halves of surrogate pairs and
    names that come twice, all of which end somewhere else as an error of another kind, and lets text nest so
    deeply that writing it fails.

    Raises
    ------
    ValueError
        Saying what was expected. Nothing else is raised, whatever the text is.
    """
    try:
        if not isinstance(text, str):
            text = text.decode("utf-8")
        opened = text.count("[") + text.count("{")
        if opened + text.count(",") > _MOST_VALUES:
            # A value in memory takes up to a hundred times what it takes as text.
            raise ValueError(f"there must be at most {_MOST_VALUES} values")
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            # Few texts have a long number, and a call for every number of the others would cost more than all
            # the rest.
            parse_int=_bounded if _LONG_NUMBER.search(text) else None,
            object_pairs_hook=_object,
        )
        if "\\u" in text:
            # Half a surrogate pair could not be sent on.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise ValueError("text must be whole UTF-8, without halves of surrogate pairs") from None
    except RecursionError:
        raise ValueError(f"values must nest at most {_MOST_DEPTH} levels deep") from None
    if opened > _MOST_DEPTH and _deeper_than(value, _MOST_DEPTH):
        raise ValueError(f"values must nest at most {_MOST_DEPTH} levels deep")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore
        raise ValueError(f"a name must come once in an object, and {twice!r:.60} comes twice")
    return made


def _bounded(text: str) -> int:
    # Digits are counted first: to read 4,300 of them takes long, and of more Python refuses.
    value = int(text) if len(text) <= _MOST_DIGITS else MOST_WHOLE + 1
    if abs(value) > MOST_WHOLE:
        raise ValueError(f"a whole number must be at most {MOST_WHOLE}, got {text:.30}")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        _refuse_constant(text)
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"a number must be finite, got {name:.30}")


def _deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return True


def shown_text(text: object, most: int | None = None) -> str:
    """Return ``str(text)`` with U+FFFD for every character that a terminal would obey instead of showing it.

    ``most``: longest text of a name within a sentence, in one line; what is longer ends in an ellipsis.
    """
    shown = str(text)
    if most is not None:
        shown = re.sub(r"[\n\t]", " ", shown if len(shown) <= most else shown[: most - 1] + "…")
    return _HIDDEN.sub("\ufffd", shown)


def attempt_folders(folder: Path) -> list[Path]:
    """Return the run folders of attempts before a restart from a checkpoint, oldest first; no links."""
    home = folder / "attempts"
    with suppress(OSError):
        if home.is_dir() and not home.is_symlink():
            folders = [each for each in home.iterdir() if each.is_dir() and not each.is_symlink()]
            numbered = [each for each in folders if re.fullmatch("[0-9]{1,9}", each.name)]
            return sorted(numbered, key=lambda each: int(each.name))
    return []


def replace_file(path: Path, content: bytes, *, mode: int | None = 0o666, sync: bool = False) -> None:
    """Replace a file, or make it, in one go.

    It is written under another name in the same folder first: a dot, the file's name, another dot and eight
    hexadecimal digits. That is removed where the writing fails, and left where the process is killed.

    Parameters
    ----------
    mode : int or None
        Of the file, before the process's mask; None in a run folder, whose mode decides (``folder_modes``).
    sync : bool
        Whether its bytes shall be on the disk before it replaces the other.

    Raises
    ------
    OSError
        When the disk is full or fails, or the folder cannot be written; the file is then as it was.
    """
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    made = new_file_mode(path.parent) if mode is None else mode
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, made), "wb") as file:
            if mode is None:
                take_mode(partial, made)
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
    """Open a plain file for reading: a link could lead out of its folder, a pipe or a device would never end.

    Raises
    ------
    OSError
        When it is not plain, or cannot be opened; ``strerror`` says which.
    """
    try:
        # Opening a pipe would wait for its other end.
        flags = os.O_RDONLY
        for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
            flags |= getattr(os, name, 0)
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
