"""What benchmarks look at: a real JupyterLab, a page of it in a real Chromium, a training beside them, and the page's code in Node."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .children import Child, call, free_port, said, until_closed
from .report import ROOT

__all__ = ["Lab", "node_side", "node_version", "paced", "paced_training", "running_lab", "serving"]

# For what hangs: on a busy machine JupyterLab takes more than a minute.
STARTED_S = 300


@dataclass(frozen=True)
class Lab:
    """A JupyterLab that runs.

    Attributes
    ----------
    url, token : str
        Its address, and what logs in.
    home : Path
        What it writes is below, files are in ``root``.
    environment : dict
        Of its process, and of what belongs to it.
    pid : int
        The server's process.
    """

    url: str
    token: str
    home: Path
    environment: dict[str, str]
    pid: int

    def look(self, script: str, limit: float, **page: Any) -> dict[str, Any]:
        """Drive a browser, and return the JSON that comes of it.

        Parameters
        ----------
        script : str
            A script of this folder, or a part of ``pages.mjs``.
        limit : float
            Seconds after which it has failed.
        **page
            Its arguments, in ``BENCH_PAGE``.

        Raises
        ------
        RuntimeError
            When it failed.
        """
        file = script if "." in script else "pages.mjs"
        process = subprocess.Popen(
            ["node", str(ROOT / "bench" / file), script],
            cwd=ROOT,
            env=self.environment
            | {"BENCH_TOKEN": self.token, "BENCH_PAGE": json.dumps({"url": self.url, **page}, default=str)},
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
def running_lab(home: Path, extensions: Path | None = None, **environment: str) -> Iterator[Lab]:
    """Run a JupyterLab that keeps all it writes below ``home``, with further labextensions."""
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    news = '{"fetchNews": "false", "checkForUpdates": false}'
    (settings / "notification.jupyterlab-settings").write_text(news, encoding="utf-8")
    (home / "root").mkdir(exist_ok=True)
    own = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    whole = os.environ | {name: str(home / folder) for name, folder in own.items()} | environment
    port, token = free_port(), secrets.token_hex(16)
    options = [
        *("--no-browser", "--allow-root", "--expose-app-in-browser", "--ServerApp.port_retries=0"),
        *(f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={home / 'root'}"),
        *([] if extensions is None else [f"--LabApp.extra_labextensions_path={extensions.absolute()}"]),
    ]
    url = f"http://127.0.0.1:{port}/"
    with serving(["jupyterlab", *options], f"{url}api", whole | {"JUPYTER_TOKEN": token}, home) as pid:
        yield Lab(url, token, home, whole, pid)


@contextmanager
def serving(command: Sequence[str], asked: str, environment: dict[str, str], home: Path) -> Iterator[int]:
    """Run the module of a server, and give its process once an address answers; what it says is in a file of its name.

    Raises
    ------
    RuntimeError
        When it ended or did not start.
    """
    with (home / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            deadline = time.monotonic() + STARTED_S
            while not _answers(asked):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} did not start within {STARTED_S} s.")
                time.sleep(0.2)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def paced_training(rate: float, flags: Sequence[str], **options: Any) -> Iterator[str]:
    """Run :func:`paced` in a process of its own; give its run's id."""
    with Child(call("lab:paced", rate=rate, flags=list(flags), **options)) as training:
        yield training.read()


def paced(
    rate: float, flags: Sequence[str], ahead: int = 0, hurry: int = 0, statistics: bool = False
) -> None:
    """Train the demo model until standard input closes; each step logs when its tensors were made.

    Parameters
    ----------
    rate : float
        Steps a second.
    flags : sequence of str
        What is traced.
    ahead : int
        First steps, which are not paced.
    hurry : int
        Steps before the pace, made eight times as fast after those.
    statistics : bool
        Whether it trains, and logs statistics of parameters and gradients.
    """
    import torch

    import megalens
    from megalens import Tile
    from megalens.demo import GPT

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT()
    ended = until_closed()
    with megalens.trace(model, name="bench", flags=dict.fromkeys(flags, Tile(96)), linger=0) as tracer:
        if not tracer.connected(30):
            raise TimeoutError("The tracer did not reach its hub within 30 s.")
        if statistics:
            megalens.log_statistics(model, tracer=tracer, param=1, grad=1)
        steps = 0
        due = time.monotonic()
        while not ended.is_set():
            if steps == ahead:
                said(tracer.run_id)
            with tracer.step():
                # Other text each time: with the same one neither a colour nor a scale would ever change.
                out = model(torch.randint(256, (1, model.config.sequence)))
                if statistics:
                    model.zero_grad()
                    loss = out.square().mean()
                    loss.backward()
                    tracer.log(loss=loss)
                tracer.log(produced=time.time(), unit="s")
            steps += 1
            if steps > ahead:
                due = max(due + 1 / (rate * (8 if steps <= hurry else 1)), time.monotonic() - 1)
                ended.wait(max(0.0, due - time.monotonic()))


def node_side(ways: str, *arguments: object) -> Child:
    """Run a part of ``node-side.mjs``, the page's code in Node, which answers every line with one of JSON."""
    return Child(["node", str(ROOT / "bench" / "node-side.mjs"), ways, *map(str, arguments)])


def node_version() -> str:
    """Return what ``node --version`` says."""
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
