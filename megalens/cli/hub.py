"""The command line: ``megalens hub``, ``megalens runs`` and ``megalens tunnel``."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import re
import signal
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..hub.discovery import entry_path, found_hubs
from ..protocol import RECORD_MODE, is_record_mode, shown_text

if TYPE_CHECKING:
    from ..hub.options import HubOptions

_NICENESS = 10
_EXIT_CODES = (
    "Exit codes: 0 done, 1 an error of Megalens itself, 2 wrong arguments, a port in use or a folder that "
    "cannot be written."
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    hub = commands.add_parser(
        "hub",
        help="start the hub of one run",
        description="Start the hub of one run. It prints one JSON line once its port is open.",
        epilog=_EXIT_CODES,
    )
    hub.add_argument("--name", default="run", help="name of the run until a training process gives its own")
    hub.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback)")
    hub.add_argument("--port", type=_port, default=0, help="port to listen on (default: any free one)")
    hub.add_argument("--record", type=Path, metavar="DIR", help="record the run in DIR/<run id>")
    hub.add_argument(
        "--resume",
        type=Path,
        metavar="FOLDER",
        help="go on with the recording in this run folder, of a training that restarts from a checkpoint",
    )
    hub.add_argument(
        "--first-step",
        type=count,
        metavar="N",
        help=(
            "with --resume: the first step that is trained now; what is recorded of it and later ones "
            "becomes an earlier attempt"
        ),
    )
    hub.add_argument(
        "--record-bytes",
        type=count,
        metavar="N",
        help=(
            "what the recording may take while it is written: its oldest steps are given up for newer ones "
            "(default: no bound)"
        ),
    )
    add_record_mode(hub)
    hub.add_argument(
        "--linger",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="end this long after the last viewer of a finished run left (default: 10)",
    )
    hub.add_argument(
        "--parent-pid",
        type=int,
        metavar="PID",
        help="end when this process is gone and no training process is attached",
    )
    hub.add_argument(
        "--queue-bytes",
        dest="viewer_queue_bytes",
        type=count,
        metavar="N",
        help="bound of what waits for one viewer (default: 32 MiB)",
    )
    hub.add_argument(
        "--backlog-bytes",
        type=count,
        metavar="N",
        help="tensors kept for viewers that come later (default: 64 MiB)",
    )
    hub.add_argument(
        "--join-seconds",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="time that a client has to say what it is (default: 10)",
    )
    hub.set_defaults(run=main_hub)
    tunnel = commands.add_parser(
        "tunnel",
        help="list the live runs of another machine here, by ssh",
        description=(
            "Open an ssh connection to a machine on which you train. Its live runs then appear here as those "
            "of this machine, in the panel and for megalens.connect(), until this command ends. When the "
            "connection goes, it is opened again. ssh's own configuration, keys and questions apply."
        ),
        epilog="Exit codes: 0 ended by Ctrl-C, 1 an error of Megalens, 2 ssh cannot reach the machine.",
    )
    tunnel.add_argument(
        "destination", metavar="HOST", help="what ssh takes: node7, me@node7, ssh://me@node7:2222"
    )
    tunnel.add_argument("--batch", action="store_true", help="never ask: fail where ssh needs a password")
    tunnel.set_defaults(run=main_tunnel)


def add_record_mode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record-mode",
        type=_mode,
        metavar="MODE",
        help=(
            "permissions of the run's folder in octal digits, such as 750 (default: its owner's alone, and "
            "its group's to read where DIR has the setgid bit)"
        ),
    )


def _mode(text: str) -> int:
    mode = int(text, 8) if re.fullmatch("[0-7]{3,4}", text) else 0
    if not is_record_mode(mode):
        raise argparse.ArgumentTypeError(f"expected the digits of {RECORD_MODE}, got {text!r:.100}")
    return mode


def main_hub(arguments: argparse.Namespace) -> int:
    import asyncio

    from ..hub.options import HubOptions
    from ..hub.server import keep_freed_memory
    from ..hub.terminal import silence_websockets

    keep_freed_memory()
    silence_websockets()
    if (arguments.resume is None) != (arguments.first_step is None) or (
        arguments.resume and arguments.record
    ):
        print(
            "megalens hub: --resume and --first-step belong together, in the place of --record.",
            file=sys.stderr,
        )
        return 2
    given = {each.name: getattr(arguments, each.name, None) for each in fields(HubOptions)}
    given["name"] = arguments.name[:200] or "run"
    options = HubOptions(**{name: value for name, value in given.items() if value is not None})
    asyncio.run(_serve(options))
    return 0


def main_runs(arguments: argparse.Namespace) -> int:
    here, distant = found_hubs()
    for hub in [*here, *distant]:
        reached = hub not in distant
        if arguments.json:
            shown = {
                "id": hub.id,
                "name": hub.name,
                "pid": hub.pid,
                "address": hub.address,
                "started": hub.started,
                "record": hub.record,
                "node": hub.via or hub.node,
                "reached": reached,
            }
            print(json.dumps(shown))
        elif reached:
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(hub.started))
            where = f"  on {hub.via}" if hub.via else f"  recorded in {hub.record}" if hub.record else ""
            print(shown_text(f"{hub.name}  {hub.id}  since {since}  {hub.address}{where}"))
        else:
            print(shown_text(hub.distant_words()))
    return 0


def main_tunnel(arguments: argparse.Namespace) -> int:
    import asyncio

    from ..hub.terminal import ask_to_stop
    from ..hub.tunnel import Tunnel

    def say(sentence: str) -> None:
        print(shown_text(sentence), flush=True)

    async def serve() -> None:
        await ask_to_stop(Tunnel(arguments.destination, batch=arguments.batch, say=say).serve())

    asyncio.run(serve())
    return 0


async def _serve(options: HubOptions) -> None:
    import asyncio

    from ..hub.server import Hub

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    hub = Hub(options)
    # Each would be a traceback, and strangers can cause as many as they like.
    loop.set_exception_handler(lambda _, context: hub.log.count(_error_words(context)))
    entry = await hub.start()
    # What is loaded by now stays: the collector need not scan it with every frame.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    ready = {
        "format": 1,
        "id": entry.id,
        "host": entry.host,
        "port": entry.port,
        "runtime_file": str(entry_path(entry).absolute()),
    }
    with contextlib.suppress(OSError, ValueError):
        print(json.dumps(ready), flush=True)
        # Whoever started it may have gone: nothing is ever printed to a closed pipe later.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _stand_back()
    await hub.serve_until_done(stop)


def _error_words(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return f"{context.get('message', 'error')} ({type(error).__name__ if error else 'no exception'})"[:200]


def _stand_back() -> None:
    """Lower the hub's priority: on a fully busy machine the hub waits, not the step."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICENESS)
    with contextlib.suppress(OSError, AttributeError):
        # A batch process does not interrupt another one just because a frame came.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return value


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError("expected a number of seconds")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return value
