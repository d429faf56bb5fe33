"""Finding the hubs of this user: one runtime file per hub, readable by nobody else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import warnings
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import platformdirs

from ..protocol import ProtocolError, check_definition, open_plain, parse_json, replace_file, shown_text
from .options import HubError

_FORMAT = 1
_MAX_BYTES = 64 * 1024
_POSIX = os.name == "posix"


@dataclass(frozen=True)
class HubEntry:
    """Where one hub is and how to be let in: the content of its runtime file.

    Attributes
    ----------
    name : str
        Run name as the hub was given it. A producer may announce another.
    host, port : str, int
        Where it listens. A hub bound to every address is entered under loopback.
    token : str
        What ``Authorization: Bearer`` carries. Never shown by ``repr``.
    started : float
        Seconds since the epoch.
    record : str or None
        The run folder, when the hub records.
    process : str or None
        What tells the hub's process from a later one of the same number; None where that is unknown.
    ended : float or None
        When the training ended, seconds since the epoch; the hub may still serve viewers. None while it goes
        on.
    """

    id: str
    name: str
    pid: int
    host: str
    port: int
    token: str = field(repr=False)
    started: float
    record: str | None = None
    process: str | None = None
    ended: float | None = None
    format: int = _FORMAT

    @property
    def address(self) -> str:
        """The WebSocket address, such as ``ws://127.0.0.1:45671``. It carries no token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"ws://{host}:{self.port}"


def runtime_folder() -> Path:
    """Return the folder of the runtime files: ``$MEGALENS_RUNTIME_DIR``, else the user's own."""
    chosen = os.environ.get("MEGALENS_RUNTIME_DIR")
    if chosen:
        return Path(chosen)
    with warnings.catch_warnings():
        # It warns where the system gives no runtime folder and /tmp is used; write_entry checks the owner
        # there.
        warnings.simplefilter("ignore")
        return Path(platformdirs.user_runtime_dir("megalens", appauthor=False))


def entry_path(run: str, folder: Path | None = None) -> Path:
    """Return where the runtime file of a run lies."""
    return (runtime_folder() if folder is None else Path(folder)) / f"hub-{run}.json"


def write_entry(entry: HubEntry, folder: Path | None = None) -> Path:
    """Write a runtime file atomically, mode 0600, in a folder with mode 0700, and return its path.

    Raises ``HubError`` when the folder belongs to or can be written by someone else, or cannot be written.
    """
    folder = runtime_folder() if folder is None else Path(folder)
    path = folder / f"hub-{entry.id}.json"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_shared(folder)
        replace_file(path, json.dumps(asdict(entry)).encode(), mode=0o600)
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

    Entries whose process is gone are ignored. Files that cannot be read, that others can read or that belong
    to someone else are ignored with a ``RuntimeWarning``.
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
                f"Ignored the runtime file {shown_text(path.name, 200)}: {reason}",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        if _alive(entry):
            entries.append(entry)
    return sorted(entries, key=lambda entry: entry.started, reverse=True)


def find_hub(name_or_id: str | None = None, folder: Path | None = None) -> HubEntry | None:
    """Return the newest hub whose training goes on, else the newest one; or the newest of an id or name."""
    # Sorting keeps the order of equals.
    hubs = sorted(live_hubs(folder), key=lambda hub: hub.ended is not None)
    if name_or_id is None:
        return hubs[0] if hubs else None
    for hub in hubs:
        if hub.id == name_or_id:
            return hub
    return next((hub for hub in hubs if hub.name == name_or_id), None)


def id_at_address(run: str, address: str) -> str:
    """Return a stable id for a hub that claims the run id of another hub, by its address."""
    return f"{run[:80]}.at-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


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
    with open_plain(path) as file:
        info = os.fstat(file.fileno())
        if _POSIX and info.st_uid != os.geteuid():
            raise HubError("it belongs to another user.")
        if _POSIX and info.st_mode & 0o077:
            raise HubError("others can read it, so its token is no secret. Expected mode 0600.")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise HubError("it is larger than a runtime file can be.")
    try:
        values = parse_json(data)
        check_definition("RuntimeFile", values, path.name)
    except ProtocolError as error:
        # Never the value: it may be the token.
        raise HubError(f"{error.field} is missing or not as it should be.") from error
    except ValueError as error:
        # It quotes numbers and names only, and a token is neither.
        raise HubError(f"it cannot be read: {error}.") from error
    entry = HubEntry(**{each.name: values[each.name] for each in fields(HubEntry) if each.name in values})
    if path.name != f"hub-{entry.id}.json":
        raise HubError(f"it says that it is of the run {entry.id!r:.120}.")
    return entry


def _alive(entry: HubEntry) -> bool:
    """Whether the hub's own process still runs: a reused pid is another process and does not count."""
    if _POSIX:
        try:
            os.kill(entry.pid, 0)
        except (OSError, OverflowError):
            return False
    there = process_identity(entry.pid)
    if entry.process is not None and there is not None:
        # Whatever has its number or its port now: it is the very process, or it is gone.
        return there == entry.process
    began = _process_start(entry.pid)
    if began is not None and began < 0:
        return False
    if began is not None and began <= entry.started + 5:
        return True
    # The clock may have been set since, or this system does not tell: then the port decides.
    return _port_open(entry)


def process_identity(pid: int) -> str | None:
    """Return what tells a process from all others with its number; None where that is unknown.

    It contains when the process began by a clock that nobody sets, and the boot of the system.
    """
    try:
        fields = _process_fields(pid)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return "ended" if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    except (OSError, IndexError, ValueError):
        return None


def _process_fields(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


def _process_start(pid: int) -> float | None:
    """Return the start of a process in seconds since the epoch; -1 for a zombie, None where unknown."""
    try:
        fields = _process_fields(pid)
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
