"""Finding a run and attaching to it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ..hub.discovery import HubEntry, find_hub, found_hubs, id_at_address, live_hubs
from ..hub.options import HubError
from ..protocol import RUNS_FOLDER
from .errors import ClientError, bad_parameter
from .recorded import RecordedRun
from .run import Run
from .run_folder import RunFolder

if TYPE_CHECKING:
    from ..hub.tunnel import BackgroundTunnel

_LOOK_FOR_SECONDS = 8.0


def connect(
    name_or_id_or_address: str | None = None, *, token: str | None = None, timeout: float = 10.0
) -> Run:
    """Attach to a live run; one that has ended is opened from its recording.

    Recordings are looked for by the run's id in ``megalens-runs`` here and in the folders above, as where a
    notebook lies deeper than the training script.

    Parameters
    ----------
    name_or_id_or_address : str, optional
        Name or id of the run; the ``ws://host:port`` address of its hub; or ``ssh://[user@]host[:port]/run``
        for a run of another machine, reached by ssh without a password of ours to ask for (``run`` may be
        absent). The newest live run when absent.
    token : str, optional
        The hub's token, needed with an address only.
    timeout : float
        Seconds to wait for the hub's answer.

    Raises
    ------
    ClientError
        When there is no such live run and no such recording (it says which there are), or the hub refuses.
    ProtocolError
        ``version-mismatch``.
    """
    wanted = name_or_id_or_address
    if wanted is not None and not isinstance(wanted, str):
        raise bad_parameter(
            f"connect(…) takes a run's name, its id or a ws:// address, got {wanted!r:.100}. "
            "megalens.open(…) opens a folder.",
            "name",
        )
    if wanted is not None and wanted.startswith(("ws://", "wss://")):
        return _by_address(wanted, token, timeout)
    entry = (
        _by_ssh(wanted, timeout) if wanted is not None and wanted.startswith("ssh://") else find_hub(wanted)
    )
    if entry is None:
        folder = None if wanted is None else _recording(wanted)
        if folder is None:
            raise _no_run(wanted)
        return RecordedRun(folder)
    from .live import LiveRun

    run = LiveRun(_Follow(entry), Path(entry.record) if entry.record else None)
    run.start(timeout)
    return run


_tunnels: dict[str, BackgroundTunnel] = {}


def _by_ssh(address: str, timeout: float) -> HubEntry:
    from ..hub.tunnel import BackgroundTunnel

    destination, _, run = address.removeprefix("ssh://").partition("/")
    tunnel = _tunnels.get(destination)
    try:
        if tunnel is None or not tunnel.open:
            tunnel = _tunnels[destination] = BackgroundTunnel(f"ssh://{destination}")
        return tunnel.wait_for(unquote(run) or None, timeout)
    except HubError as error:
        raise ClientError(str(error), code="unreachable", field="name") from error


def _recording(wanted: str) -> RunFolder | None:
    """Return the recording of an ended run, by its id: a name may be that of a run about to begin."""
    for home in _homes() if Path(wanted).name == wanted else ():
        if (home / wanted / "run.json").is_file():
            folder = RunFolder(home / wanted)
            # The folder may have been renamed to another run's name.
            return folder if folder.id == wanted else None
    return None


def _homes() -> list[Path]:
    here = Path.cwd()
    return [home / RUNS_FOLDER for home in (here, *here.parents)]


def _named(wanted: str | None) -> str | None:
    found: list[RunFolder] = []
    for file in (file for home in _homes() for file in home.glob("*/run.json")) if wanted else ():
        with suppress(ClientError):
            found.append(RunFolder(file.parent))
    named = [folder for folder in found if folder.name == wanted]
    newest = max(named, key=lambda folder: float(folder.header["run"]["started"]), default=None)
    return None if newest is None else os.path.relpath(newest.path)


def _by_address(address: str, token: str | None, timeout: float) -> Run:
    hub = next((hub for hub in live_hubs() if hub.address == address.rstrip("/")), None)
    found = token
    if found is None and hub is not None:
        found = hub.token
    if found is None:
        raise ClientError(
            f"A token is needed for {address}. It is in the hub's runtime file on the machine that trains: "
            "connect(address, token=…).",
            code="unauthorized",
            field="token",
        )
    from .live import LiveRun

    target = (address, found, None)

    def called(run: str) -> str:
        # Who has the token of the hub that the runtime file names is that hub, at whichever address.
        others = [hub for hub in live_hubs() if hub.id == run and hub.token != found]
        return id_at_address(run, address.rstrip("/")) if others else run

    # Who has its token may read what it records on this machine.
    folder = next((Path(hub.record) for hub in live_hubs() if hub.token == found and hub.record), None)
    run = LiveRun(lambda: target, folder, called=called)
    run.start(timeout)
    return run


class _Follow:
    """The address of a discovered run: its hub, or the one that replaced it."""

    def __init__(self, entry: HubEntry) -> None:
        self._entry = entry
        self._gone_since: float | None = None

    def __call__(self) -> tuple[str, str, str] | None:
        hubs = live_hubs()
        found = next((hub for hub in hubs if hub.id == self._entry.id), None)
        if found is None:
            # The tracer restarts a killed hub under the same name.
            found = next(
                (hub for hub in hubs if hub.name == self._entry.name and hub.started > self._entry.started),
                None,
            )
        now = time.monotonic()
        if found is None:
            self._gone_since = self._gone_since or now
            if now - self._gone_since > _LOOK_FOR_SECONDS:
                return None
        else:
            self._gone_since = None
            self._entry = found
        return self._entry.address, self._entry.token, self._entry.id


def _no_run(wanted: str | None) -> ClientError:
    hubs, distant = found_hubs()
    live = [f"{hub.name} ({hub.id})" for hub in hubs]
    recorded = sorted((file.parent.name for file in Path(RUNS_FOLDER).glob("*/run.json")), reverse=True)
    if wanted is None:
        message = (
            "No run is live. Start one with tracer = megalens.trace(model) in your training script, "
            "or python -m megalens.demo."
        )
    elif live:
        message = f"No live run is called {wanted!r:.100}. Live now: {', '.join(live[:10])}."
    else:
        message = f"No live run is called {wanted!r:.100}: none is live."
    if (named := _named(wanted)) is not None:
        message += f" The newest recording of that name is opened with megalens.open({named!r})."
    elif recorded:
        message += (
            f" Recorded in {RUNS_FOLDER}: {', '.join(recorded[:5])}; open one with "
            f"megalens.open('{RUNS_FOLDER}/{recorded[0]}')."
        )
    elsewhere = [hub for hub in distant if wanted in (None, hub.id, hub.name)]
    return ClientError(" ".join([message, *(f"{hub.distant_words()}." for hub in elsewhere[:5])]))
