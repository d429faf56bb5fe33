"""A way to the hubs of another machine over ssh, by which they appear among the live runs of this one.

ssh's own client opens the connection, with its configuration, host keys and agent; nothing here asks for or
holds a password. One connection carries everything: a script on the other side tells which runtime files lie
there (they hold the hubs' tokens, which never leave the connection), and each hub found gets a forwarded port
on loopback and a runtime file here, which names this process. When the connection goes, both stay, and it is
opened again: whoever looks on goes on where he was.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from ..protocol import shown_text
from .background import BackgroundTask
from .discovery import (
    HubEntry,
    entry_path,
    live_hubs,
    parsed_entry,
    remove_entry,
    touch_entry,
    write_entry,
)
from .machine import POSIX, node_name, own_namespaces, process_identity
from .options import HubError

_LOOK_SECONDS = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_MOST_HUBS = 256
_LINE_BYTES = 128 * 1024
_BEGIN, _END = "megalens-node ", "megalens-end"

# The folders of discovery.py, in the words of any POSIX shell. Hubs touch their file every minute; one that
# was killed did not remove it, which shows where its process would have a number here.
_SCRIPT = f"""
space=$(readlink /proc/self/ns/pid 2>/dev/null | tr -dc 0-9)
show() {{
  line=$(head -c {_LINE_BYTES // 2} "$1") || return 0
  pid=$(printf %s "$line" | sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p')
  case $line in *"\\"namespaces\\": [$space,"*) kill -0 "$pid" 2>/dev/null || return 0 ;; esac
  printf '%s\\n' "$line"
}}
look() {{
  [ -d "$1" ] || return 0
  find "$1" -maxdepth 1 -type f -name 'hub-*.json' ! -name '*.via-*' -user "$(id -u)" -mmin -4 |
    while IFS= read -r file; do show "$file"; done
}}
echo "{_BEGIN}$(uname -n)"
data=${{XDG_DATA_HOME:-$HOME/.local/share}}/jupyter
while :; do
  if [ -n "$MEGALENS_RUNTIME_DIR" ]; then look "$MEGALENS_RUNTIME_DIR"; else
    look "${{JUPYTER_RUNTIME_DIR:-${{JUPYTER_DATA_DIR:-$data}}/runtime}}/megalens"
    [ -z "$JUPYTER_RUNTIME_DIR$JUPYTER_DATA_DIR" ] || look "$data/runtime/megalens"
    look "$HOME/Library/Jupyter/runtime/megalens"
  fi
  echo "{_END}"
  sleep {_LOOK_SECONDS}
done
"""


class Tunnel:
    """The hubs of one other machine, among the live runs of this one while :meth:`serve` runs.

    Parameters
    ----------
    destination : str
        What ``ssh`` takes: ``node7``, ``me@node7``, ``ssh://me@node7:2222``, a name of its configuration.
    batch : bool
        Whether nobody is there to answer what ssh asks, so that it fails instead.
    say : callable
        Takes a sentence for the person who waits.
    """

    def __init__(self, destination: str, *, batch: bool = False, say: Callable[[str], None]) -> None:
        if not POSIX:
            raise HubError(
                "This system's ssh cannot add ports to an open connection. Forward the hub's port by hand, "
                "ssh -L 5000:127.0.0.1:PORT HOST, and connect to ws://127.0.0.1:5000 with its token."
            )
        self.destination = destination
        self.host = re.sub(r"^ssh://|/.*$|:\d+/?$", "", destination).rpartition("@")[2].strip("[]")
        if destination.startswith("-") or not re.fullmatch(r"[!-~]{1,300}", destination) or not self.host:
            raise HubError(f"{destination!r:.100} is no machine that ssh could reach. Expected [USER@]HOST.")
        self.entries: dict[str, HubEntry] = {}
        """What this machine is told: one entry a hub, at a port of loopback."""
        self._batch = batch
        self._say = say
        self._there: dict[str, HubEntry] = {}
        self._was_open = False

    async def serve(self) -> None:
        """Go on until this is cancelled; raises ``HubError`` where the first connection cannot be opened."""
        pause = _FIRST_PAUSE
        try:
            while True:
                if await self._connection():
                    pause = _FIRST_PAUSE
                    self._say(f"The connection to {self.host} is gone; it is opened again.")
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            for entry in self.entries.values():
                remove_entry(entry)

    async def _connection(self) -> bool:
        """Serve over one connection until it ends, and return whether it was ever open."""
        # A socket's path has a hundred characters at most.
        folder = tempfile.mkdtemp(prefix="ml-")
        control = f"{folder}/ssh"
        try:
            ssh = await asyncio.create_subprocess_exec(
                *("ssh", "-M", "-S", control, "-T"),
                *("-o", "ControlPersist=no", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none"),
                *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
                *(("-o", "BatchMode=yes") if self._batch else ()),
                *("--", self.destination, "sh", "-s"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE if self._batch else None,
                limit=_LINE_BYTES,
            )
        except FileNotFoundError as error:
            raise HubError("There is no ssh on this machine. Install OpenSSH's client.") from error
        errors = asyncio.create_task(ssh.stderr.read(4096)) if ssh.stderr else None
        opened = False
        try:
            assert ssh.stdin is not None
            assert ssh.stdout is not None
            with contextlib.suppress(OSError):
                ssh.stdin.write(_SCRIPT.encode())
                ssh.stdin.close()
            async for found in _listed(ssh.stdout):
                if not opened:
                    opened = self._was_open = True
                    # The ports of the last connection went with it.
                    self._there.clear()
                await self._show(found, control)
        finally:
            with contextlib.suppress(ProcessLookupError):
                ssh.terminate()
            await ssh.wait()
            shutil.rmtree(folder, ignore_errors=True)
        if not self._was_open:
            said = (await errors).decode(errors="replace").strip().splitlines() if errors else []
            reason = f": {shown_text(said[-1], 300)}" if said else ""
            raise HubError(f"ssh could not reach {self.host}{reason}. See whether `ssh {self.host}` works.")
        return opened

    async def _show(self, found: dict[str, HubEntry], control: str) -> None:
        """Forward a port to each hub that is new, and forget those that are gone."""
        own = {hub.id for hub in live_hubs() if hub.via is None}
        for run in [run for run in self.entries if run not in found]:
            remove_entry(self.entries.pop(run))
            if self._there.pop(run, None) is not None:
                self._say(f"{run} has ended.")
        for run, hub in found.items():
            if run in own:
                continue
            known = self._there.get(run)
            entry = self.entries.get(run)
            if known is None or (known.host, known.port) != (hub.host, hub.port):
                port = entry.port if entry else _free_port()
                if known is not None:
                    await self._ask(control, "cancel", port, known)
                if not await self._ask(control, "forward", port, hub):
                    continue
            else:
                assert entry is not None
                port = entry.port
            self._there[run] = hub
            shown = replace(
                hub,
                pid=os.getpid(),
                process=process_identity(os.getpid()),
                node=node_name(),
                namespaces=own_namespaces(),
                host="127.0.0.1",
                port=port,
                # Its folder is on the other machine.
                record=None,
                via=self.host,
            )
            self.entries[run] = shown
            # The age of the file tells others that this process lives; and it may be gone.
            if entry == shown and entry_path(shown).exists():
                touch_entry(shown)
                continue
            with contextlib.suppress(HubError):
                write_entry(shown)
            if entry is None:
                self._say(f"{hub.name} ({run}) on {self.host} is among the live runs here.")

    async def _ask(self, control: str, what: str, port: int, hub: HubEntry) -> bool:
        """Have the open connection forward a port of loopback to a hub, or no more."""
        host = f"[{hub.host}]" if ":" in hub.host else hub.host
        asking = await asyncio.create_subprocess_exec(
            *("ssh", "-S", control, "-O", what, "-L", f"127.0.0.1:{port}:{host}:{hub.port}"),
            *("--", self.destination),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await asking.wait() == 0


async def _listed(lines: asyncio.StreamReader) -> AsyncIterator[dict[str, HubEntry]]:
    """Yield the hubs that can be reached on the other machine, each time that it tells them.

    What a login prints before is passed over, as is what is no runtime file. Raises ``HubError`` for more
    than a machine would say.
    """
    node: str | None = None
    found: dict[str, HubEntry] = {}
    while True:
        try:
            line = await lines.readline()
        except ValueError as error:
            raise HubError("The other machine sent a line that is longer than a runtime file.") from error
        if not line:
            return
        text = line.decode(errors="replace").strip()
        if text.startswith(_BEGIN):
            node = text[len(_BEGIN) :]
        elif node is not None and text == _END:
            yield found
            found = {}
        elif node is not None and len(found) < _MOST_HUBS:
            with contextlib.suppress(HubError):
                hub = parsed_entry(line, "runtime file")
                # A home may be shared with machines that this one does not forward to.
                if hub.node in (None, node):
                    found[hub.id] = hub


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class BackgroundTunnel:
    """A :class:`Tunnel` in a thread of this process, as for a notebook. It ends with the process."""

    def __init__(self, destination: str) -> None:
        self._tunnel = Tunnel(destination, batch=True, say=lambda sentence: None)
        self._task: BackgroundTask[None] = BackgroundTask(
            lambda ready: self._tunnel.serve(), "megalens-tunnel"
        )
        atexit.register(self.close)

    @property
    def open(self) -> bool:
        """Whether it goes on."""
        return self._task.running

    def wait_for(self, run: str | None, seconds: float) -> HubEntry:
        """Return the entry of a run of that machine, by id or name, else the newest.

        Raises ``HubError`` where the machine cannot be reached or no such run is seen within ``seconds``.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.open:
            found = sorted(self._tunnel.entries.values(), key=lambda hub: hub.started, reverse=True)
            hub = next((hub for hub in found if run in (None, hub.id, hub.name)), None)
            if hub is not None:
                return hub
            self._task.wait(0.05)
        if (failure := self._task.failure) is not None:
            raise failure
        there = ", ".join(f"{hub.name} ({hub.id})" for hub in list(self._tunnel.entries.values())[:10])
        what = f"No live run is called {run!r:.100} on" if run else "No run is live on"
        raise HubError(f"{what} {self._tunnel.host}{f'. Live there: {there}' if there else ''}.")

    def close(self) -> None:
        """End the connection and take its runs out of the list."""
        self._task.close(5)
