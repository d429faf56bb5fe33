"""Finding the hubs of this user: one runtime file per hub, readable by nobody else."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import stat
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from ..protocol.shown_text import shown_text
from .errors import HubError

__all__ = ["HubEntry", "find_hub", "live_hubs", "remove_entry", "runtime_folder", "write_entry"]

_FORMAT = 1
_MAX_BYTES = 64 * 1024
_POSIX = os.name == "posix"


@dataclass(frozen=True)
class HubEntry:
    """Where one hub is and how to be let in: the content of its runtime file.

    Attributes
    ----------
    id : str
        Run id.
    name : str
        Run name as the hub was given it. A producer may announce another.
    pid : int
        Process of the hub.
    host, port : str, int
        Where it listens. A hub bound to every address is entered under loopback.
    token : str
        What ``Authorization: Bearer`` carries. Never shown by ``repr``.
    started : float
        Seconds since the epoch.
    record : str or None
        The run folder, when the hub records.
    format : int
        Format of the runtime file, 1.
    """

    id: str
    name: str
    pid: int
    host: str
    port: int
    token: str = field(repr=False)
    started: float
    record: str | None = None
    format: int = _FORMAT

    @property
    def address(self) -> str:
        """The WebSocket address, such as ``ws://127.0.0.1:45671``. It carries no token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"ws://{host}:{self.port}"


def runtime_folder() -> Path:
    """Return the folder of the runtime files: ``$MEGALENS_RUNTIME_DIR``, else the user's own. It may not exist yet."""
    chosen = os.environ.get("MEGALENS_RUNTIME_DIR")
    if chosen:
        return Path(chosen)
    with warnings.catch_warnings():
        # It warns where the system gives no runtime folder and /tmp is used; write_entry checks the owner there.
        warnings.simplefilter("ignore")
        return Path(platformdirs.user_runtime_dir("megalens", appauthor=False))


def write_entry(entry: HubEntry, folder: Path | None = None) -> Path:
    """Write a runtime file atomically, mode 0600, in a folder made with mode 0700, and return its path.

    Raises
    ------
    HubError
        When the folder belongs to or can be written by someone else, or cannot be written.
    """
    folder = runtime_folder() if folder is None else Path(folder)
    path = folder / f"hub-{entry.id}.json"
    partial = folder / f".hub-{entry.id}.{secrets.token_hex(4)}.tmp"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_shared(folder)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(entry), file)
            os.replace(partial, path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
    except OSError as error:
        raise HubError(
            f"Could not write the runtime file in {folder}: {error.strerror or error}. "
            "Set MEGALENS_RUNTIME_DIR to a folder that you can write."
        ) from error
    return path


def remove_entry(entry: HubEntry | str, folder: Path | None = None) -> None:
    """Remove the runtime file of a hub, given its entry or run id. Does nothing when it is gone already."""
    folder = runtime_folder() if folder is None else Path(folder)
    name = entry if isinstance(entry, str) else entry.id
    with contextlib.suppress(OSError):
        (folder / f"hub-{name}.json").unlink()


def live_hubs(folder: Path | None = None) -> list[HubEntry]:
    """Return the hubs that run now, newest first.

    Entries whose process is gone are ignored. Files that cannot be read, that others can read or that belong to someone else are
    ignored with a ``RuntimeWarning``.
    """
    folder = runtime_folder() if folder is None else Path(folder)
    try:
        paths = sorted(folder.glob("hub-*.json"))
    except OSError:
        return []
    entries = []
    for path in paths:
        try:
            entry = _read_entry(path)
        except FileNotFoundError:
            continue
        except (OSError, HubError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            warnings.warn(
                shown_text(f"Ignored the runtime file {path.name}: {reason}"), RuntimeWarning, stacklevel=2
            )
            continue
        if _alive(entry):
            entries.append(entry)
    return sorted(entries, key=lambda entry: entry.started, reverse=True)


def find_hub(name_or_id: str | None = None, folder: Path | None = None) -> HubEntry | None:
    """Return the newest live hub, or the newest one with this id or name; ``None`` when there is none."""
    hubs = live_hubs(folder)
    if name_or_id is None:
        return hubs[0] if hubs else None
    for hub in hubs:
        if hub.id == name_or_id:
            return hub
    return next((hub for hub in hubs if hub.name == name_or_id), None)


def _refuse_shared(folder: Path) -> None:
    if not _POSIX:
        return
    info = folder.stat()
    if info.st_uid != os.geteuid() or info.st_mode & 0o022:
        raise HubError(
            f"The runtime folder {folder} belongs to another user or others can write in it. "
            "Set MEGALENS_RUNTIME_DIR to a folder of your own with mode 0700."
        )


def _read_entry(path: Path) -> HubEntry:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise HubError("it is not a plain file.")
        if _POSIX and info.st_uid != os.geteuid():
            raise HubError("it belongs to another user.")
        if _POSIX and info.st_mode & 0o077:
            raise HubError("others can read it, so its token is no secret. Expected mode 0600.")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise HubError("it is larger than a runtime file can be.")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HubError("it is not JSON.") from error
    return _checked_entry(values)


def _checked_entry(values: Any) -> HubEntry:
    if not isinstance(values, dict):
        raise HubError("it does not hold a JSON object.")
    if values.get("format") != _FORMAT:
        raise HubError(f"expected format {_FORMAT}, found {values.get('format')!r:.50}.")
    kinds: dict[str, type | tuple[type, ...]] = {
        "id": str,
        "name": str,
        "pid": int,
        "host": str,
        "port": int,
        "token": str,
        "started": (int, float),
        "record": (str, type(None)),
    }
    for name, kind in kinds.items():
        value = values.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise HubError(f"its {name} is missing or of the wrong kind.")
    if not (0 < values["port"] < 65536 and values["pid"] > 0):
        raise HubError("its port or pid is out of range.")
    return HubEntry(**{name: values[name] for name in kinds})


def _alive(entry: HubEntry) -> bool:
    """Whether the hub's own process still runs: a reused pid is another process and does not count."""
    if _POSIX:
        try:
            os.kill(entry.pid, 0)
        except (OSError, OverflowError):
            return False
    began = _process_start(entry.pid)
    if began is not None and began < 0:
        return False
    if began is not None and began <= entry.started + 5:
        return True
    # The clock may have been set since, or this system does not tell: then the port decides.
    return _port_open(entry)


def _process_start(pid: int) -> float | None:
    """Start of a process in seconds since the epoch; -1 for one that has ended (a zombie), None where it cannot be told."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
        boot = next(
            line
            for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines()
            if line.startswith("btime")
        )
        if fields[0] in "ZX":
            return -1.0
        return float(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, StopIteration, IndexError, ValueError, AttributeError):
        return None


def _port_open(entry: HubEntry) -> bool:
    try:
        with socket.create_connection((entry.host, entry.port), timeout=0.3):
            return True
    except OSError:
        return False
