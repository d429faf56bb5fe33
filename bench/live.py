"""What benchmarks start and look at: processes that call a function, a training, a hub, a real JupyterLab with a page of it in a real Chromium, and the page's code in Node.

``python -m bench.live MODULE:FUNCTION JSON`` calls a function with keyword arguments.
"""

from __future__ import annotations

import importlib
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from .common import ROOT

__all__ = [
    "Child",
    "Lab",
    "busy_seconds",
    "call",
    "free_port",
    "fresh",
    "heard",
    "joined",
    "node_side",
    "node_version",
    "paced",
    "paced_training",
    "resident_bytes",
    "run_processes",
    "running_lab",
    "said",
    "serving",
    "until_closed",
    "viewer",
]


def call(function: str, **given: Any) -> list[str]:
    """Return the command that calls ``module:function`` of the benchmarks."""
    return [sys.executable, "-m", "bench.live", f"bench.{function}", json.dumps(given, default=str)]


class Child:
    """A process that talks by lines of JSON; in a ``with`` block it is ended.

    ``command`` is what :func:`call` returns, or another one.
    """

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def read(self) -> Any:
        """Return what it says next; raise ``RuntimeError`` where it has ended."""
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait(60)
            raise RuntimeError(f"A part of the benchmark ended early, with exit code {code}.")
        return json.loads(line)

    def write(self, message: object = None) -> None:
        """Say something, or to go on."""
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def ask(self, message: object) -> Any:
        """Say something, and return the answer."""
        self.write(message)
        return self.read()

    def end(self, patience: float = 20.0) -> None:
        """Close its input, and end it where it does not end by itself within so many seconds."""
        self._process.stdin.close()
        for seconds, then in ((patience, self._process.terminate), (60.0, self._process.kill)):
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                then()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Child:
        """Return this process."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.end(20.0 if error[0] is None else 0.0)


def said(message: object = None) -> None:
    """Say something to the process that has started this one."""
    print(json.dumps(message), flush=True)


def heard() -> Any:
    """Return what the process that has started this one says next; None where it has ended."""
    return json.loads(sys.stdin.readline() or "null")


def until_closed() -> threading.Event:
    """Return what is set when standard input closes: the benchmark that started this process has ended."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def viewer(run: str) -> None:
    """Look at a live run, and say how many frames came whenever it is asked."""
    from megalens.runs import connect

    with connect(run) as seen:
        said("attached")
        while heard():
            said(seen.received_frames)


@contextmanager
def traced(model: Any, leads: bool = True, **options: Any) -> Iterator[Any]:
    """Give the tracer of a model once it has its hub; only the rank that ``leads`` a job waits for one."""
    import megalens

    with megalens.trace(model, **options) as tracer:
        if leads and not tracer.connected(60):
            raise TimeoutError("The tracer did not reach its hub within 60 s.")
        yield tracer


@contextmanager
def hub_process(*options: str) -> Iterator[tuple[Child, Any]]:
    """Run a hub; give its process, and what clients need to find it."""
    from megalens.hub.discovery import find_hub

    hub = Child([sys.executable, "-m", "megalens", "hub", *options])
    try:
        yield hub, find_hub(hub.read()["id"])
    finally:
        hub.end(0)


def fresh(code: str, *arguments: object, cwd: Path = ROOT, **environment: str) -> Any:
    """Run code in an interpreter of its own, and return the JSON that it prints last."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"It failed in {cwd.name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_processes(function: str, job: object, world: int, folder: Path) -> Any:
    """Call ``module:function`` in processes that are connected as a launcher does, with a job and a file, and return what the first one writes there."""
    out = folder / "found.json"
    group = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            call(function, job=job, out=out),
            env={**os.environ, **group, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
        )
        for rank in range(world)
    ]
    codes = [each.wait() for each in processes]
    if any(codes):
        # A figure of what is left would be of another training.
        raise SystemExit(f"A process of {function} ended with {codes}.")
    return json.loads(out.read_text())


def joined(rank: int, world: int, store: object) -> None:
    """Be a rank of a group of processes on this machine, which find each other by a file, with one thread."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group(
        "gloo",
        store=distributed.FileStore(str(store), world),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=120),
    )


def free_port() -> int:
    """Return a port that nobody has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def resident_bytes(pid: int | None) -> int:
    """Return what a process has in memory; this one when absent."""
    pages = Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Memory:
    """The most memory, bytes, that a process had since it is looked at; in a ``with`` block."""

    def __init__(self, pid: int, every: float) -> None:
        self.most = 0
        self._pid, self._every = pid, every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        # A process that has ended has no memory.
        with suppress(OSError):
            while not self._ended.wait(self._every):
                self.most = max(self.most, resident_bytes(self._pid))


def busy_seconds(pid: int) -> float:
    """Return what a process has had of a processor, with its threads that have ended."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


# For what hangs: on a busy machine JupyterLab takes more than a minute.
STARTED_S = 300


@dataclass(frozen=True)
class Lab:
    """A JupyterLab that runs."""

    url: str
    token: str
    home: Path
    """What it writes is below, files are in ``root``."""
    environment: dict[str, str]
    """Of its process, and of what belongs to it."""
    pid: int

    def look(self, part: str, limit: float, **page: Any) -> dict[str, Any]:
        """Drive a browser by a part of ``pages.mjs``, with arguments, and return the JSON that comes of it; ``RuntimeError`` where it failed, such as after so many seconds."""
        process = subprocess.Popen(
            ["node", str(ROOT / "bench" / "pages.mjs"), part],
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
        return json.loads(output)


@contextmanager
def running_lab(home: Path, **environment: str) -> Iterator[Lab]:
    """Run a JupyterLab that keeps all it writes below ``home``."""
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
    ]
    url = f"http://127.0.0.1:{port}/"
    with serving(["jupyterlab", *options], f"{url}api", whole | {"JUPYTER_TOKEN": token}, home) as pid:
        yield Lab(url, token, home, whole, pid)


@contextmanager
def serving(command: Sequence[str], asked: str, environment: dict[str, str], home: Path) -> Iterator[int]:
    """Run the module of a server, and give its process once an address answers; what it says is in a file of its name."""
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
    with Child(call("live:paced", rate=rate, flags=list(flags), **options)) as training:
        yield training.read()


def paced(
    rate: float, flags: Sequence[str], ahead: int = 0, hurry: int = 0, statistics: bool = False
) -> None:
    """Train the demo model at a rate until standard input closes; each step logs when its tensors were made.

    The first steps, ``ahead``, are not paced; ``hurry`` are made eight times as fast after those. With ``statistics`` it learns, and logs those of parameters and gradients.
    """
    import torch

    import megalens
    from megalens import Tile
    from megalens.demo import GPT

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT()
    ended = until_closed()
    with traced(model, name="bench", flags=dict.fromkeys(flags, Tile(96)), linger=0) as tracer:
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


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
