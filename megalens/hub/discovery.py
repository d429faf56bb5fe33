"""Finding the hubs of this user: one runtime file per hub, readable by nobody else.

The files lie where Jupyter keeps its own, in the user's home: they outlive a logout, and a home that machines
share shows the runs of all of them. What trains where it cannot be reached from here is found too.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal

from ..protocol import ProtocolError, check_definition, open_plain, parse_json, replace_file, shown_text
from .machine import POSIX, boot_id, is_running, node_name, own_namespaces, port_open
from .options import HubError

TOUCH_SECONDS = 60.0
"""How often a hub shows that it is there: machines that see only its runtime file cannot ask."""

_FORMAT = 1
_MAX_BYTES = 64 * 1024
# Three times unheard, and the clocks of two machines.
_SILENT_SECONDS = 3.5 * TOUCH_SECONDS
_FORGOTTEN_SECONDS = 7 * 86400.0


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
    node : str or None
        Name of the machine or container of the hub. ``process`` begins with the id of its boot.
    namespaces : list of int or None
        Numbers of the process and the network namespace of the hub, which differ between containers.
    via : str or None
        The machine that a tunnel leads to; ``pid`` and ``process`` are then the tunnel's.
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
    node: str | None = None
    namespaces: list[int] | None = None
    via: str | None = None
    format: int = _FORMAT

    @property
    def address(self) -> str:
        """The WebSocket address, such as ``ws://127.0.0.1:45671``. It carries no token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"ws://{host}:{self.port}"

    @property
    def file_name(self) -> str:
        """Name of the runtime file. A tunnel's is no other's, where machines share a home."""
        if self.via is None:
            return f"hub-{self.id}.json"
        return f"hub-{self.id}.via-{_digits(f'{self.node} {self.via}')}.json"

    def distant_words(self) -> str:
        """Say of a run that cannot be reached from here where it is, and what to do."""
        if self.node == node_name():
            return (
                f"{self.name} ({self.id}) trains in another container of this machine, whose network cannot "
                "be reached from here. Run both with one network, or Jupyter where the training runs."
            )
        return (
            f"{self.name} ({self.id}) trains on {self.node} and cannot be reached from here: "
            f"megalens tunnel {self.node}"
        )


def runtime_folder() -> Path:
    """Return the folder of the runtime files: ``$MEGALENS_RUNTIME_DIR``, else one beside Jupyter's own."""
    chosen = os.environ.get("MEGALENS_RUNTIME_DIR")
    return Path(chosen) if chosen else _jupyter_runtime() / "megalens"


def _runtime_folders() -> list[Path]:
    """Return the folders in which hubs of this user may have a runtime file.

    The session that trains may have another environment than the Jupyter server; and versions before 0.2
    wrote to the system's runtime folder.
    """
    if os.environ.get("MEGALENS_RUNTIME_DIR"):
        return [runtime_folder()]
    # Where versions before 0.2 wrote; nothing else here needs it.
    import platformdirs

    with warnings.catch_warnings():
        # It warns where the system gives no runtime folder and /tmp is used; _read_entry checks the owner.
        warnings.simplefilter("ignore")
        before = Path(platformdirs.user_runtime_dir("megalens", appauthor=False))
    return list(dict.fromkeys([runtime_folder(), _usual_runtime() / "megalens", before]))


def _jupyter_runtime() -> Path:
    try:
        from jupyter_core.paths import jupyter_runtime_dir
    except ImportError:
        # A machine that only trains.
        return _usual_runtime()
    return Path(jupyter_runtime_dir())


def _usual_runtime() -> Path:
    """Return Jupyter's runtime folder where no variable of its own names another."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Jupyter" / "runtime"
    if os.name == "nt":
        return Path(os.environ.get("APPDATA") or Path.home()) / "jupyter" / "runtime"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "jupyter" / "runtime"


def entry_path(entry: HubEntry, folder: Path | None = None) -> Path:
    """Return where the runtime file of a hub lies."""
    return (runtime_folder() if folder is None else Path(folder)) / entry.file_name


def write_entry(entry: HubEntry, folder: Path | None = None) -> Path:
    """Write a runtime file atomically, mode 0600, in a folder with mode 0700, and return its path.

    Raises ``HubError`` when the folder belongs to or can be written by someone else, or cannot be written.
    """
    folder = runtime_folder() if folder is None else Path(folder)
    path = entry_path(entry, folder)
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


def remove_entry(entry: HubEntry, folder: Path | None = None) -> None:
    """Remove the runtime file of a hub. Does nothing when it is gone already."""
    with contextlib.suppress(OSError):
        entry_path(entry, folder).unlink()


def touch_entry(entry: HubEntry, folder: Path | None = None) -> None:
    """Show that a hub is there; its file may be gone."""
    with contextlib.suppress(OSError):
        os.utime(entry_path(entry, folder))


def remove_dead_entries(folder: Path | None = None) -> None:
    """Remove the runtime files of hubs that are gone: killed ones of this machine, forgotten ones of others.

    One of this machine that is written anew at this moment is written once more by its hub.
    """
    folder = runtime_folder() if folder is None else Path(folder)
    for path, entry, silent in _entries([folder], warn=False):
        local = entry.node in (None, node_name())
        if _where(entry, silent) == "gone" and (local or silent > _FORGOTTEN_SECONDS):
            with contextlib.suppress(OSError):
                path.unlink()


def live_hubs(folder: Path | None = None) -> list[HubEntry]:
    """Return the hubs that run now and can be reached from here, newest first.

    Entries whose process is gone are ignored. Files that cannot be read, that others can read or that belong
    to someone else are ignored with a ``RuntimeWarning``.
    """
    return found_hubs(folder)[0]


def found_hubs(folder: Path | None = None) -> tuple[list[HubEntry], list[HubEntry]]:
    """Return :func:`live_hubs`, and those that run where they cannot be reached from here; newest first."""
    here: dict[str, HubEntry] = {}
    distant: dict[str, HubEntry] = {}
    for _, entry, silent in _entries(_runtime_folders() if folder is None else [Path(folder)], warn=True):
        where = _where(entry, silent)
        if where == "here":
            here[entry.id] = entry
        elif where == "distant":
            distant[entry.id] = entry

    def newest(found: list[HubEntry]) -> list[HubEntry]:
        return sorted(found, key=lambda entry: entry.started, reverse=True)

    return newest(list(here.values())), newest([each for run, each in distant.items() if run not in here])


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
    return f"{run[:80]}.at-{_digits(address)}"


def parsed_entry(data: bytes, name: str) -> HubEntry:
    """Return what a runtime file says; raises ``HubError`` with what is wrong, never with its token."""
    if len(data) > _MAX_BYTES:
        raise HubError("it is larger than a runtime file can be.")
    try:
        values = parse_json(data)
        check_definition("RuntimeFile", values, name)
    except ProtocolError as error:
        # Never the value: it may be the token.
        raise HubError(f"{error.field} is missing or not as it should be.") from error
    except ValueError as error:
        # It quotes numbers and names only, and a token is neither.
        raise HubError(f"it cannot be read: {error}.") from error
    return HubEntry(**{each.name: values[each.name] for each in fields(HubEntry) if each.name in values})


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _refuse_shared(folder: Path) -> None:
    if not POSIX:
        return
    info = folder.stat()
    if info.st_uid != os.geteuid() or info.st_mode & 0o022:
        raise HubError(
            f"The runtime folder {folder} belongs to another user or others can write in it. "
            "Set MEGALENS_RUNTIME_DIR to a folder of your own with mode 0700."
        )


def _entries(folders: list[Path], *, warn: bool) -> Iterator[tuple[Path, HubEntry, float]]:
    """Yield each runtime file that counts, what it says, and for how many seconds its hub was silent."""
    for folder in folders:
        try:
            paths = sorted(folder.glob("hub-*.json"))
        except OSError:
            continue
        for path in paths:
            try:
                yield path, *_read_entry(path)
            except FileNotFoundError:
                continue
            except (OSError, HubError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                if warn:
                    warnings.warn(
                        f"Ignored the runtime file {shown_text(path.name, 200)}: {reason}",
                        RuntimeWarning,
                        stacklevel=2,
                    )


def _read_entry(path: Path) -> tuple[HubEntry, float]:
    with open_plain(path) as file:
        info = os.fstat(file.fileno())
        if POSIX and info.st_uid != os.geteuid():
            raise HubError("it belongs to another user.")
        if POSIX and info.st_mode & 0o077:
            raise HubError("others can read it, so its token is no secret. Expected mode 0600.")
        data = file.read(_MAX_BYTES + 1)
    entry = parsed_entry(data, path.name)
    if path.name != entry.file_name:
        raise HubError(f"it says that it is of the run {entry.id!r:.120}.")
    return entry, time.time() - info.st_mtime


def _where(entry: HubEntry, silent: float) -> Literal["here", "distant", "gone"]:
    """Return whether a hub runs where it can be reached from here, elsewhere, or no more.

    Parameters
    ----------
    silent : float
        Seconds since it last wrote or touched its runtime file.
    """
    boot, theirs = boot_id(), (entry.process or "").partition(":")[0]
    same_machine = entry.node is None or (theirs == boot if boot and theirs else entry.node == node_name())
    own = own_namespaces()
    processes, network = entry.namespaces or own
    near = same_machine and network == own[1]
    if same_machine and processes == own[0]:
        running = is_running(entry.pid, entry.process, entry.started)
        if running is None:
            # The clock may have been set since, or this system does not tell: then the port decides.
            running = port_open(entry.host, entry.port)
        if not running:
            return "gone"
        return "here" if near or _listens_outside(entry) else "distant"
    if silent > _SILENT_SECONDS or (not same_machine and entry.node == node_name()):
        # The second: this machine was started anew.
        return "gone"
    if near:
        # Its process is in another container; the network is one.
        return "here" if port_open(entry.host, entry.port) else "gone"
    return "here" if _listens_outside(entry) else "distant"


def _listens_outside(entry: HubEntry) -> bool:
    """Return whether a hub was bound to an address of a network, where it answers."""
    try:
        loopback = ipaddress.ip_address(entry.host).is_loopback
    except ValueError:
        loopback = entry.host == "localhost"
    return not loopback and port_open(entry.host, entry.port)
