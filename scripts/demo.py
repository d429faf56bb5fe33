"""``make demo``: train the demo model and watch it from JupyterLab. ``--headless`` does the same without a person.

Exit codes: 0 all went well, or Ctrl-C ended it; 1 something failed, each thing said in one line; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from megalens.hub.discovery import live_hubs  # noqa: E402
from scripts.demo_process import Child, DemoError, catch_signals, end_process, until  # noqa: E402

__all__ = ["main"]

NOTEBOOKS = ("examples/quickstart.ipynb", "examples/generation.ipynb")
"""The first one is in front."""
MODEL = ".demo/model"
"""Where the second one looks for the model."""
PANEL = "megalens-panel"
WORKSPACE = "megalens-demo"


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/demo.py", description=__doc__)
    parser.add_argument(
        "--headless", action="store_true", help="run the notebook against the live run, then end"
    )
    parser.add_argument("--steps", type=int, default=4000, help="training steps (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=8888, help="JupyterLab's port; the next free one if taken"
    )
    options = parser.parse_args(arguments)

    catch_signals()
    os.chdir(ROOT)
    folder = ROOT / ".demo"
    folder.mkdir(exist_ok=True)
    try:
        if options.headless:
            from scripts.demo_headless import run_headless

            return run_headless(ROOT, folder)
        return run_lab(ROOT, folder, options.steps, options.port)
    except DemoError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0 if not options.headless else 1


def run_lab(root: Path, folder: Path, steps: int, port: int) -> int:
    """Start both, print the URL, and stay until Ctrl-C.

    Raises
    ------
    DemoError
        When JupyterLab or the training cannot start, or JupyterLab ends by itself.
    """
    _write_workspace(folder / "workspaces")
    _write_settings(folder / "settings")
    known = {hub.id for hub in live_hubs()}
    training = jupyter = None
    try:
        jupyter = _start_jupyter(root, folder, port)
        url = _wait_for_url(jupyter, folder / "jupyter")
        print("JupyterLab with the notebooks quickstart and generation, and the Megalens panel:\n")
        print(f"    {url}\n")
        print(
            "Ctrl-C ends JupyterLab and the training. The run is recorded in megalens-runs, at most 500 MB: the newest steps. "
            f"The model is saved in {MODEL}.\n",
            flush=True,
        )
        training = Child(
            "the training",
            [
                *(sys.executable, "-m", "megalens.demo", "--steps", str(steps)),
                *("--record", "megalens-runs", "--save", MODEL),
            ],
            folder / "training.log",
            show=True,
        )
        _stay(training, jupyter)
    except KeyboardInterrupt:
        print("\nending the training and JupyterLab", flush=True)
    finally:
        if training is not None:
            training.end(signal.SIGINT)
        if jupyter is not None:
            jupyter.end()
        # The hub is the training's child and outlives it by a few seconds, for viewers that come back.
        for hub in live_hubs():
            if hub.id not in known and training is not None and hub.name == "gpt-demo":
                end_process(hub.pid)
    return 0


def _stay(training: Child, jupyter: Child) -> None:
    told = False
    while True:
        jupyter.check()
        code = training.exit_code
        if code is not None and not told:
            told = True
            if code != 0:
                print(
                    f"failed: the training ended with exit code {code}: {training.last_line()}",
                    file=sys.stderr,
                )
            else:
                print(
                    "The training is done; JupyterLab goes on with the recorded run until Ctrl-C.", flush=True
                )
        time.sleep(0.5)


def _start_jupyter(root: Path, folder: Path, port: int) -> Child:
    runtime = folder / "jupyter"
    shutil.rmtree(runtime, ignore_errors=True)
    runtime.mkdir(mode=0o700)
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser"),
        *(f"--ServerApp.root_dir={root}", f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1"),
        f"--LabApp.workspaces_dir={folder / 'workspaces'}",
        f"--LabApp.user_settings_dir={folder / 'settings'}",
        # The news prompt would be the first thing on the screen.
        "--LabApp.news_url=None",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    environment = os.environ | {"JUPYTER_RUNTIME_DIR": str(runtime)}
    return Child("JupyterLab", command, folder / "jupyter.log", env=environment)


def _wait_for_url(jupyter: Child, runtime: Path) -> str:
    file = runtime / f"jpserver-{jupyter.pid}.json"
    until(
        lambda: file.exists() and file.stat().st_size > 0,
        60,
        "JupyterLab did not start within 60 s; .demo/jupyter.log says why",
        jupyter.check,
    )
    try:
        server = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise DemoError(f"JupyterLab wrote a server file that cannot be read: {error}") from error
    # The token is Jupyter's own login, made for this server alone, in the form in which Jupyter itself prints it.
    token = f"?token={quote(server['token'])}" if server["token"] else ""
    base = f"http://127.0.0.1:{server['port']}{server['base_url']}"
    return f"{base}lab/workspaces/{WORKSPACE}/tree/{NOTEBOOKS[0]}{token}"


def _write_workspace(folder: Path) -> None:
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    tabs = {f"notebook:{path}": path for path in NOTEBOOKS}
    layout = {
        "main": {
            "dock": {"type": "tab-area", "currentIndex": 0, "widgets": [*tabs]},
            "current": next(iter(tabs)),
        },
        "left": {"collapsed": False, "visible": True, "current": PANEL, "widgets": [PANEL]},
        "right": {"collapsed": True, "widgets": []},
        "relativeSizes": [0.26, 0.74, 0],
    }
    data = {
        "layout-restorer:data": layout,
        **{tab: {"data": {"path": path, "factory": "Notebook"}} for tab, path in tabs.items()},
    }
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    WorkspacesManager(str(folder)).save(WORKSPACE, json.dumps({"data": data, "metadata": {"id": WORKSPACE}}))


def _write_settings(folder: Path) -> None:
    plugin = folder / "@jupyterlab" / "apputils-extension"
    plugin.mkdir(parents=True, exist_ok=True)
    file = plugin / "notification.jupyterlab-settings"
    if not file.exists():
        file.write_text('{ "fetchNews": "false", "checkForUpdates": false }\n', "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
