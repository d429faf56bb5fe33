"""What benchmarks look at: a real JupyterLab, a page of it in a real Chromium, a training beside them, and the page's code in Node."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = [
    "NodeSide",
    "ROOT",
    "answers",
    "end",
    "environment_of",
    "in_page",
    "node_version",
    "running_lab",
    "running_training",
    "until_closed",
]

# For what hangs: on a busy machine JupyterLab takes more than a minute.
STARTED_S = 300
ROOT = Path(__file__).resolve().parents[1]


def in_page(
    script: str, page: Mapping[str, Any], environment: Mapping[str, str], limit: float
) -> dict[str, Any]:
    """Drive a browser, and return the JSON that comes of it.

    Parameters
    ----------
    script : str
        A script of this folder, or a part of ``pages.mjs``.
    page : mapping
        Its arguments, in ``BENCH_PAGE``.
    environment : mapping
        With the login token in ``BENCH_TOKEN``.
    limit : float
        Seconds after which it has failed.

    Raises
    ------
    RuntimeError
        When it failed.
    """
    process = subprocess.Popen(
        [
            "node",
            *(str(ROOT / "bench" / each) for each in ([script] if "." in script else ["pages.mjs"])),
            script,
        ],
        cwd=ROOT,
        env=dict(environment) | {"BENCH_PAGE": json.dumps(page)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    finally:
        # Whatever ends the watching ends the browser too.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    if process.returncode != 0:
        raise RuntimeError("The benchmark's page failed; what it said is above.")
    seen: dict[str, Any] = json.loads(output)
    return seen


@contextmanager
def running_lab(
    home: Path, environment: Mapping[str, str], extensions: Path | None = None
) -> Iterator[tuple[str, str]]:
    """Run a JupyterLab whose files are ``home/root``, with further labextensions; give its address and login token."""
    token = secrets.token_hex(16)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = home / "root"
    folder.mkdir(exist_ok=True)
    log = (home / "jupyter.log").open("wb")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"),
            *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1"),
            f"--ServerApp.root_dir={folder}",
            *([] if extensions is None else [f"--LabApp.extra_labextensions_path={extensions}"]),
        ],
        env=dict(environment) | {"JUPYTER_TOKEN": token},
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
    )
    url = f"http://127.0.0.1:{port}/"
    try:
        answers(f"{url}api", process)
        yield url, token
    finally:
        end(process)
        log.close()


def answers(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server answers; raise ``RuntimeError`` where it ended or did not start."""
    deadline = time.monotonic() + STARTED_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"The server did not start within {STARTED_S} s.")


def end(process: subprocess.Popen[Any]) -> None:
    """End a process that was started here, and wait for it."""
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None and process.stdout is None:
        process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running_training(environment: Mapping[str, str], module: str, *arguments: str) -> Iterator[str]:
    """Run a module that trains until its input ends; give its run's id, which is the first line that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        if not run_id:
            raise RuntimeError("The benchmark's training did not start.")
        yield run_id
    finally:
        end(process)


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of processes that keep all they write below ``home``."""
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    news = '{"fetchNews": "false", "checkForUpdates": false}'
    (settings / "notification.jupyterlab-settings").write_text(news, encoding="utf-8")
    (home / "hubs").mkdir(mode=0o700)
    return os.environ | {
        "MEGALENS_RUNTIME_DIR": str(home / "hubs"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }


def until_closed() -> threading.Event:
    """Return what is set when standard input closes: the benchmark that started this training has ended."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


class NodeSide:
    """Keep a Node process that answers every line of its input with one line of JSON.

    Parameters
    ----------
    ways : str
        Part of ``node-side.mjs`` that answers.
    arguments : str
        Its arguments.
    """

    def __init__(self, ways: str, *arguments: str) -> None:
        self._node = subprocess.Popen(
            ["node", str(ROOT / "bench" / "node-side.mjs"), ways, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, way: str) -> dict[str, Any]:
        """Run a way once and return its ``ms`` and ``sums``.

        Raises
        ------
        RuntimeError
            When the script ended instead of answering.
        """
        asked, answered = self._node.stdin, self._node.stdout
        assert asked is not None
        assert answered is not None
        asked.write(way + "\n")
        asked.flush()
        line = answered.readline()
        if not line:
            raise RuntimeError(f"The JavaScript side ended while it ran {way}. Run `npm ci` and try again.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> NodeSide:
        """Return this side."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the script; raise when it did not end well by itself."""
        try:
            if error is None:
                assert self._node.stdin is not None
                self._node.stdin.close()
                if self._node.wait(timeout=30) != 0:
                    raise RuntimeError(f"The JavaScript side ended with {self._node.returncode}.")
        finally:
            self._node.kill()
            self._node.wait()


def node_version() -> str:
    """Return what ``node --version`` says."""
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
