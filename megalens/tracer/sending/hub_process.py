"""Starts our own hub, and reads a hub's address from its runtime file."""

from __future__ import annotations

import json
import logging
import os
import selectors
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...protocol import ProtocolError, check_definition, read_json_file
from ..errors import TracerError

_START_SECONDS = 30.0
_UPLOAD_SECONDS = 20.0

log = logging.getLogger("megalens")


@dataclass(frozen=True)
class HubAddress:
    """Address and token of a hub. The token never shows in a repr or a log."""

    url: str
    token: str = field(repr=False)
    run_id: str | None = None
    record: str | None = None


def address_from(hub: Any) -> HubAddress:
    """Return the address of ``hub=``: ``(address, token)``, or the path of a runtime file."""
    if isinstance(hub, (tuple, list)) and len(hub) == 2 and all(isinstance(part, str) for part in hub):
        address, token = hub
        return HubAddress(address if "://" in address else f"ws://{address}", token)
    if isinstance(hub, (str, os.PathLike)):
        return _read_runtime_file(Path(hub))
    raise TracerError(
        "hub=… must be 'spawn', None, (address, token), or the path of a hub's runtime file, "
        # Not what came: there may be a token in it.
        f"got a {type(hub).__name__}."
    )


def _read_runtime_file(path: Path) -> HubAddress:
    try:
        entry = read_json_file(path, 64 * 1024)
        check_definition("RuntimeFile", entry, path.name)
        host = entry["host"]
        host = f"[{host}]" if ":" in host else host
        return HubAddress(f"ws://{host}:{entry['port']}", entry["token"], entry["id"], entry.get("record"))
    except FileNotFoundError:
        raise TracerError(
            f"hub={str(path)!r:.100} is neither 'spawn' nor the runtime file of a running hub: there is no "
            "such file."
        ) from None
    except (OSError, ValueError, ProtocolError) as error:
        raise TracerError(
            f"Could not read the hub's runtime file {path.name} ({type(error).__name__}). "
            "Expected the file that a running hub wrote; is the hub still there?"
        ) from error


class HubProcess:
    """A hub that this tracer starts. It outlives the training long enough to serve remaining viewers.

    Parameters
    ----------
    record : str or None
        Folder into which the run's own folder is written.
    linger : float
        Seconds for which the hub stays without viewers after the training.
    port : int
        Any free one when 0.
    record_bytes : int, optional
        What the recording may take; no bound when absent.
    record_mode : int, optional
        Permissions of the run folder; its owner's alone when absent.
    resume : (Path, int), optional
        Run folder whose recording goes on, and from which step on.
    upload : str, optional
        Address of other storage to which a process of its own sends the recording while it grows.
    """

    def __init__(
        self,
        name: str | None,
        record: str | None,
        linger: float,
        host: str = "127.0.0.1",
        port: int = 0,
        record_bytes: int | None = None,
        record_mode: int | None = None,
        resume: tuple[Path, int] | None = None,
        upload: str | None = None,
    ) -> None:
        self._upload = upload
        self._uploads: list[tuple[subprocess.Popen[bytes], str]] = []
        self._resume = resume
        self._host = host
        self._port = port
        self._name = name
        self._record = record
        self._record_bytes = record_bytes
        self._record_mode = record_mode
        self._linger = linger
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def everywhere(self) -> bool:
        """Whether it listens on every address of this host."""
        return self._host in ("0.0.0.0", "::")  # noqa: S104

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> HubAddress:
        """Start a hub and wait until its port is open; raises ``TracerError`` with the hub's reason."""
        command = [sys.executable, "-m", "megalens", "hub", "--linger", str(self._linger)]
        command += ["--parent-pid", str(os.getpid())]
        if self._host != "127.0.0.1":
            command += ["--host", self._host]
        if self._port:
            command += ["--port", str(self._port)]
        if self._name:
            command += ["--name", self._name]
        if self._resume:
            command += ["--resume", str(self._resume[0]), "--first-step", str(self._resume[1])]
        elif self._record:
            command += ["--record", self._record]
        if self._record_bytes:
            command += ["--record-bytes", str(self._record_bytes)]
        if self._record_mode is not None:
            command += ["--record-mode", f"{self._record_mode:o}"]
        # A file, not a pipe: nobody reads it later, and a full pipe would stop the hub.
        with tempfile.TemporaryFile() as complaints:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    env=_environment(),
                    # Ctrl-C in the terminal ends the training, which then ends the hub in order.
                    start_new_session=True,
                )
            except OSError as error:
                raise TracerError(
                    f"Could not start the hub: {error.strerror or error}. Pass hub=None to train untraced."
                ) from error
            self._process = process
            assert process.stdout is not None
            line = _read_line(process.stdout.fileno(), time.monotonic() + _START_SECONDS)
            process.stdout.close()
            try:
                address = _read_runtime_file(Path(json.loads(line)["runtime_file"]))
                if self._resume:
                    # A restarted hub begins a run of its own: the training does not go back for it.
                    self._record, self._resume = str(self._resume[0].parent), None
                self._send(address)
                return address
            except (ValueError, KeyError, TypeError):
                if process.poll() is None:
                    try:
                        process.wait(2)
                    except subprocess.TimeoutExpired:
                        process.terminate()
                complaints.seek(0)
                lines = complaints.read().decode("utf-8", "replace").strip().splitlines()
                reason = lines[-1] if lines else "it said nothing"
                raise TracerError(
                    f"Could not start the hub: {reason} Pass hub=None to train untraced."
                ) from None

    def _send(self, address: HubAddress) -> None:
        """Start what sends the recording to other storage: it outlives this process, and lets all others go
        first.
        """
        if self._upload is None or address.record is None:
            return
        command = [sys.executable, "-m", "megalens", "upload", address.record, self._upload]
        try:
            with open(f"{address.record}.upload.log", "ab") as lines:
                process = subprocess.Popen(
                    [*command, "--follow", "--low-priority"],
                    stdin=subprocess.DEVNULL,
                    stdout=lines,
                    stderr=lines,
                    env=_environment(),
                    start_new_session=True,
                )
        except OSError as error:
            log.warning(
                "The recording is not sent to %s (%s). It is in %s.", self._upload, error, address.record
            )
            return
        self._uploads.append((process, address.record))

    def wait_for_upload(self) -> None:
        """Wait for the recording to be on the other storage, and say where it is when that takes too long."""
        until = time.monotonic() + _UPLOAD_SECONDS
        for process, folder in self._uploads:
            try:
                if process.wait(max(0.0, until - time.monotonic())) == 0:
                    continue
                words = f"The recording could not be sent to {self._upload}: {folder}.upload.log says why."
            except subprocess.TimeoutExpired:
                words = f"The recording is still being sent to {self._upload}, by process {process.pid}."
            log.warning("%s All of it is in %s; megalens upload goes on.", words, folder)
        self._uploads = []


def _environment() -> dict[str, str]:
    """Let the child import this very package, also where it runs from a checkout."""
    environment = dict(os.environ)
    home = Path(__file__).resolve().parents[3]
    if home.name not in ("site-packages", "dist-packages"):
        paths = [str(home), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


def _read_line(descriptor: int, until: float) -> str:
    data = b""
    # Not select(), which takes no descriptor above 1023: a training may have that many files open.
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not data.endswith(b"\n") and len(data) < 65536:
            left = until - time.monotonic()
            if left <= 0 or not selector.select(left):
                break
            piece = os.read(descriptor, 4096)
            if not piece:
                break
            data += piece
    return data.decode("utf-8", "replace")
