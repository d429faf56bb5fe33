"""The command line: ``megalens show``, a run in a browser without a notebook."""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..protocol import RUNS_FOLDER, shown_text
from .look import RUN_HELP, with_run

if TYPE_CHECKING:
    from ..runs import Run

_EXIT_CODES = (
    "Exit codes: 0 ended by Ctrl-C, 1 an error of Megalens itself, 2 wrong arguments, no such run or no free "
    "port."
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    words = "show a run, or all runs, in a browser, by the Jupyter server that is installed"
    show = commands.add_parser(
        "show", help=words, description=f"{words[0].upper()}{words[1:]}.", epilog=_EXIT_CODES
    )
    show.add_argument(
        "target",
        metavar="RUN",
        nargs="?",
        help=f"{RUN_HELP} (default: those of ./{RUNS_FOLDER} and live ones)",
    )
    show.add_argument("--view", metavar="NAME", help="show this view alone, such as timeline")
    show.add_argument("--port", type=int, default=0, help="the port on loopback (default: a free one)")
    show.add_argument("--no-browser", action="store_true", help="print the address only")
    show.add_argument("--json", action="store_true", help="print the address as JSON")
    show.set_defaults(run=_show)


def _show(arguments: argparse.Namespace) -> int:
    if arguments.target is not None:
        return with_run(arguments, _serve)
    if arguments.view is not None:
        print("megalens show: --view needs a run: megalens runs lists live ones.", file=sys.stderr)
        return 2
    return _serve(None, arguments)


def _serve(run: Run | None, arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C. The run stays open: one by ssh is reached through its connection."""
    from jupyter_server.serverapp import ServerApp
    from traitlets.config import Config

    class Server(ServerApp):
        # No kernels, files or terminals: the page has no use for them.
        default_services: tuple[str, ...] = ("api", "auth", "security")  # type: ignore[assignment]

    folder = run.folder if run is not None else None
    shown = [run.id, *filter(None, [arguments.view])] if run is not None else []
    path = "/".join(["megalens", "view", *(quote(each, safe="") for each in shown)]) if shown else "megalens/"
    far = "SSH_CONNECTION" in os.environ
    settings: dict[str, Any] = {
        "ServerApp": {
            "root_dir": str(folder.parent.resolve() if folder is not None else Path.cwd()),
            "default_url": f"/{path}",
            "jpserver_extensions": {"megalens.server": True},
            "ip": "127.0.0.1",
            "port": arguments.port,
            "port_retries": 0,
            "open_browser": not (arguments.no_browser or far),
            "allow_root": True,
            "log_level": logging.ERROR,
            "terminals_enabled": False,
        },
        "MegalensExtension": {"run_folders": ["."] if folder is not None else [RUNS_FOLDER]},
        # As Jupyter makes one for each start; given here, it prints no page of text about it.
        "IdentityProvider": {"token": secrets.token_hex(24)},
    }
    server = Server.instance(config=Config(settings))
    try:
        server.initialize(argv=[], find_extensions=False)
    except SystemExit:
        # It has said why.
        return 2
    if run is not None and not run.has_streams and folder is not None:
        # Statistics of another logger are no recording that lies in a folder of runs.
        server.web_app.settings["megalens_registry"].open_statistics(folder.name)
    server.io_loop.add_callback(_tell, server, path, far, arguments.json)
    # Without a question whether it is meant: nothing is lost.
    signal.signal(signal.SIGINT, lambda *_: server.stop(from_signal=True))
    server.start()
    return 0


def _tell(server: Any, path: str, far: bool, as_json: bool) -> None:
    """Say where the page is, once the server listens."""
    address = f"{server.connection_url}{path}?token={server.identity_provider.token}"
    here = f"{os.environ.get('USER', 'USER')}@{socket.gethostname()}"
    forward = f"ssh -N -L {server.port}:127.0.0.1:{server.port} {shown_text(here, 200)}" if far else None
    if as_json:
        print(json.dumps({"address": address, "forward": forward}), flush=True)
        return
    print(f"Megalens is at {address} until Ctrl-C.", flush=True)
    if forward is not None:
        print(f"From your own machine it is reached after: {forward}", flush=True)
