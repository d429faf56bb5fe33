"""Starts the Python processes of tests warm: each forks from a parent that has imported what it needs.

Once ``install`` has run, what ``subprocess`` starts with one of the commands of ``_imported`` forks from a parent that imported the hub,
or torch too, once for all tests of this process. It becomes a child of whoever asked for it, with the environment, folder, standard
streams and exit code that it would have had. Every other command starts cold, and so does each one whose environment has ``COLD``: what
a process imports or takes shows only there.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["COLD", "TORCH", "install", "install_forked", "leave", "preload"]

COLD = "MEGALENS_TEST_COLD"
# prctl's: whoever asks becomes the parent of a process whose own parent has ended.
_SUBREAPER = 36
_LARGEST = 1 << 20
_HUB = (
    *("megalens.cli.main", "megalens.hub.server"),
    # The process in which a Jupyter server has files read.
    *("megalens.server.reader.moments_handlers", "megalens.server.reader.runs_handlers"),
    *("tornado.httpserver", "tornado.netutil", "duckdb"),
    # pyarrow, and what it looks for once it reads values, or a file.
    *("pyarrow.compute", "pyarrow.pandas_compat", "pandas", "pyarrow.parquet", "pyarrow.dataset"),
)
TORCH = (
    *_HUB,
    # The second is imported by the first optimizer.
    *("torch", "torch._dynamo", "safetensors.torch"),
    *("megalens.api.trace", "megalens.api.statistics", "megalens.adapters", "megalens.demo.train"),
    # What kernels of notebooks have.
    *("ipykernel.kernelapp", "megalens.api.notebook"),
)
# For work on a copy of the package: what the package imports, and nothing of itself.
_OTHERS = (
    *("torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.pipelining", "pytest"),
    *(
        "pyarrow.compute",
        "pandas",
        "pyarrow.parquet",
        "pyarrow.dataset",
        "ipywidgets",
        "jupyter_server.serverapp",
    ),
)
_TESTS = Path(__file__).parents[1]
_SCRIPTS = (
    "worker.py",
    "train.py",
    "own_group_script.py",
    "trainer_script.py",
    "demo.py",
    "trainer.py",
    "job.py",
)


def install() -> None:
    """Let this process start its Python processes warm, where the system and this Python allow it."""
    if sys.platform == "linux" and hasattr(subprocess, "_fork_exec"):
        subprocess._fork_exec = _Starter(subprocess._fork_exec)


def install_forked(modules: tuple[str, ...] = _HUB) -> None:
    """Do the same in a process that itself was forked warm: the parent is a copy of it, made before it starts threads."""
    ours, theirs = _channel()
    if os.fork() == 0:
        ours.close()
        _forget_tests()
        nothing = os.open(os.devnull, os.O_RDWR)
        for own in range(3):
            os.dup2(nothing, own)
        os.close(nothing)
        _be_parent(theirs)
    theirs.close()
    subprocess._fork_exec = _Starter(subprocess._fork_exec, {modules: ours})


def _forget_tests() -> None:
    """Be without what pytest has put into the process that collected tests."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__
    faulthandler.disable()
    logging.root.handlers.clear()
    if "_pytest.pathlib" in sys.modules:
        atexit.unregister(sys.modules["_pytest.pathlib"].cleanup_numbered_dir)
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if not type(finder).__module__.startswith("_pytest")
    ]
    sys.path[:] = [path for path in sys.path if not Path(path).is_relative_to(_TESTS)]
    for name, module in list(sys.modules.items()):
        of_tests = (getattr(module, "__file__", None) or "").startswith(f"{_TESTS}{os.sep}")
        if of_tests or name.endswith(".__main__"):
            del sys.modules[name]


def preload(modules: tuple[str, ...] = TORCH) -> None:
    """Import ``modules``, and what slices add to them where the package is among them; read the demo's text."""
    for module in modules:
        importlib.import_module(module)
    if modules == _OTHERS:
        return
    if "megalens.demo.train" in modules:
        # The text that demos and examples train on takes longer to read than the first steps.
        importlib.import_module("megalens.demo.train").load_corpus()
    slices = importlib.import_module("megalens.slices")
    for each in slices.find_slices():
        for path in (each.commands, each.traced if "torch" in modules else ""):
            if path:
                slices.load(path)
    slices.find_slices.cache_clear()


def _imported(command: list[str]) -> tuple[str, ...]:
    """What the process of a command that follows ``python`` finds imported; nothing when it starts cold."""
    match command[1:] if command[:1] == ["-u"] else command:
        case ["-m", "megalens", "hub" | "replay", *_]:
            return _HUB
        case ["-m", "megalens.server.reader", *_]:
            return _HUB
        case ["-m", "megalens", "serve", *_]:
            return TORCH
        case [
            "-m",
            "megalens.demo"
            | "torch.distributed.run"
            | "ipykernel_launcher"
            | "jupyterlab"
            | "tests.tracer.compiled_work",
            *_,
        ]:
            return TORCH
        case [script, *_] if Path(script).name == "rest_work.py":
            return _OTHERS
        case [script, *_] if Path(script).name in _SCRIPTS:
            return TORCH
    return ()


class _Starter:
    """Stands in for the function with which ``subprocess`` forks and executes."""

    def __init__(self, cold: Any, parents: dict[tuple[str, ...], socket.socket] | None = None) -> None:
        self._cold = cold
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._parents = parents or {}
        # What one test sets is not for the parents of all; each process that forks from them has a path of its own.
        self._environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def __call__(self, *given: Any) -> int:
        command, _, close, kept, folder, environment = given[:6]
        words = [os.fsdecode(word) for word in command]
        # One descriptor beyond the standard streams is kept always: it tells of a command that could not be executed.
        plain = close and len(kept) == 1 and given[17:22] == (None, None, None, -1, None)
        ours = plain and words[0] == sys.executable and os.getpid() == self._process
        variables = [k + b"=" + v for k, v in os.environb.items()] if environment is None else environment
        imported = _imported(words[1:]) if ours else ()
        if not imported or any(variable.startswith(COLD.encode()) for variable in variables):
            return int(self._cold(*given))
        request = {
            "command": words[1:],
            "folder": os.getcwd() if folder is None else os.fsdecode(folder),
            "environment": [os.fsdecode(variable) for variable in variables],
            "session": given[15],
            "group": given[16],
        }
        streams = [own if end == -1 else end for own, end in enumerate((given[6], given[9], given[11]))]
        with self._lock:
            parent = self._parent(imported)
            prctl = ctypes.CDLL(None).prctl
            prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(parent, [json.dumps(request).encode()], streams)
                return int(parent.recv(_LARGEST))
            except (BrokenPipeError, ValueError) as error:
                raise RuntimeError(f"The parent of warm processes ended: does {imported} import?") from error
            finally:
                prctl(_SUBREAPER, 0, 0, 0, 0)

    def _parent(self, imported: tuple[str, ...]) -> socket.socket:
        for modules, parent in self._parents.items():
            if set(imported) <= set(modules) and (imported == _OTHERS) == (modules == _OTHERS):
                return parent
        ours, theirs = _channel()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *imported],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**self._environment, COLD: "1"},
                pass_fds=[theirs.fileno()],
            )
        # It ends by itself once nobody can ask it any more.
        process.returncode = 0
        self._parents[imported] = ours
        return ours


def _channel() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
    return ours, theirs


def _serve(channel: socket.socket) -> dict[str, Any]:
    """Fork at every request; return, in each process that came of it, what was asked."""
    while True:
        data, streams, _, _ = socket.recv_fds(channel, _LARGEST, 3)
        if not data:
            os._exit(0)
        told, tell = os.pipe()
        adopted, adopt = os.pipe()
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            os.close(adopt)
            asked = dict(json.loads(data))
            # Whoever asked may ask at once which group this process leads.
            if asked["session"]:
                os.setsid()
            if asked["group"] >= 0:
                os.setpgid(0, asked["group"])
            os.write(tell, str(os.getpid()).encode())
            # It is closed once the process between has ended, so that whoever asked is the parent.
            os.read(adopted, 1)
            for own, stream in enumerate(streams):
                os.dup2(stream, own)
            for descriptor in (*streams, told, tell, adopted):
                os.close(descriptor)
            channel.close()
            return asked
        os.waitpid(between, 0)
        channel.send(os.read(told, 20))
        for descriptor in (*streams, told, tell, adopted, adopt):
            os.close(descriptor)


def _be_parent(channel: socket.socket) -> NoReturn:
    """Serve, and be each process that is asked for; those that have torch start others warm, too: torchrun its ranks, a training its hub."""
    asked = _serve(channel)
    modules = _imported(asked["command"])
    if modules != _HUB:
        install_forked(modules)
    _run(asked)


def _become(asked: dict[str, Any]) -> None:
    """Be the process that was asked for, up to its end."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in asked["environment"])
    added = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    words = asked["command"]
    if words[0] == "-u":
        words = words[1:]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path[:0] = [asked["folder"], *added]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[:0] = [str(Path(words[0]).resolve().parent), *added]
        runpy.run_path(words[0], run_name="__main__")


def _run(asked: dict[str, Any]) -> NoReturn:
    """Be the process that was asked for."""
    code, interrupted = 0, False
    try:
        _become(asked)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        code, interrupted = 1, isinstance(error, KeyboardInterrupt)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
    leave(code, interrupted)


def leave(code: int, interrupted: bool = False) -> NoReturn:
    """End as Python does, but for its last clearing away of each imported module, which takes longer than many a process."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _main(descriptor: str, *modules: str) -> None:
    own = sys.path[1:]
    sys.path.insert(0, str(Path(__file__).parents[2]))
    preload(modules)
    sys.path[:] = own
    gc.collect()
    gc.freeze()
    _be_parent(socket.socket(fileno=int(descriptor)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
