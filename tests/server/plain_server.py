"""A real Jupyter server in a process of its own, to which files without permission are closed even where the tests run as root.

``python plain_server.py COMMAND…`` gives up the right to read what modes forbid and becomes the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["PlainServer"]

_TOKEN = "let-me-in"
_CAPBSET_DROP = 24
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2


class PlainServer:
    """The server, with the extension.

    Parameters
    ----------
    root : Path
        Its root folder.
    home : Path
        Where Jupyter keeps its own files.
    """

    def __init__(self, root: Path, home: Path) -> None:
        folders = {f"JUPYTER_{kind}_DIR": str(home / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._log = home / "server.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, __file__, sys.executable, "-m", "jupyter_server"),
                    *(
                        "--ServerApp.ip=127.0.0.1",
                        f"--ServerApp.port={self._port}",
                        "--ServerApp.port_retries=0",
                    ),
                    *(f"--IdentityProvider.token={_TOKEN}", f"--ServerApp.root_dir={root}"),
                    *("--ServerApp.jpserver_extensions=megalens.server=True", "--no-browser", "--allow-root"),
                ],
                env={**os.environ, **folders},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(ConnectionError):
                self.ask("runs")
                return
            if self._process.poll() is not None or time.monotonic() > end:
                self.close()
                raise AssertionError(self._log.read_text()[-3000:])
            time.sleep(0.05)

    def ask(self, *path: str, body: Any = None, method: str | None = None) -> tuple[int, Any]:
        """Ask an endpoint; return status and body, JSON where it is JSON."""
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        ) as connection:
            connection.request(
                method or ("GET" if body is None else "POST"),
                "/megalens/api/" + "/".join(path),
                None if body is None else json.dumps(body),
                {"Authorization": f"token {_TOKEN}"},
            )
            answer = connection.getresponse()
            data = answer.read()
            is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
            return answer.status, json.loads(data) if is_json else data

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


def main(command: list[str]) -> None:
    """Become a command that modes hold for."""
    if os.geteuid() == 0:
        kernel = ctypes.CDLL(None, use_errno=True)
        for right in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
            if kernel.prctl(_CAPBSET_DROP, right, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "the right to read everything cannot be given up")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
