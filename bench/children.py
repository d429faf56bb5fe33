"""Other processes of a benchmark: a function of a module that is called in a process of its own, and code in a fresh interpreter.

``python -m bench.children MODULE:FUNCTION JSON`` calls a function with keyword arguments.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from .report import ROOT

__all__ = [
    *(
        "Child",
        "busy_seconds",
        "call",
        "free_port",
        "fresh",
        "heard",
        "joined",
        "resident_bytes",
        "run_processes",
    ),
    *("said", "until_closed", "viewer"),
]


def call(function: str, **given: Any) -> list[str]:
    """Return the command that calls ``module:function`` of the benchmarks."""
    return [sys.executable, "-m", "bench.children", f"bench.{function}", json.dumps(given, default=str)]


class Child:
    """A process that talks by lines of JSON; in a ``with`` block it is ended.

    Parameters
    ----------
    command : list of str
        What :func:`call` returns, or another one.
    env : dict, optional
        Its environment.
    """

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def read(self) -> Any:
        """Return what it says next; raise ``RuntimeError`` where it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait(60)
            raise RuntimeError(f"A part of the benchmark ended early, with exit code {code}.")
        return json.loads(line)

    def write(self, message: object = None) -> None:
        """Say something, or to go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def ask(self, message: object) -> Any:
        """Say something, and return the answer."""
        self.write(message)
        return self.read()

    def end(self, patience: float = 20.0) -> None:
        """Close its input, and end it where it does not end by itself within so many seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.end(20.0 if error is None else 0.0)


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


def busy_seconds(pid: int) -> float:
    """Return what a process has had of a processor, with its threads that have ended."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
