"""The command line: ``megalens serve``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol import shown_text
from ...protocol.settings import flags_from_text

if TYPE_CHECKING:
    from ...hub.dialects.inference_gateway import ServedInference

_EXIT_CODES = (
    "Exit codes: 0 ended by Ctrl-C or SIGTERM, 1 an error of Megalens itself, 2 wrong arguments or a folder "
    "without a model."
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve a model that writes text while it is watched",
        description=(
            "Serve the model of a folder: a live run whose viewers can have it write text. Nothing is "
            "fetched, and no code of the folder is run."
        ),
        epilog=_EXIT_CODES,
    )
    parser.add_argument(
        "--model",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="what save_pretrained of Hugging Face wrote, with its tokenizer; or a checkpoint of the demo",
    )
    parser.add_argument("--name", help="name of the run (default: the folder's)")
    parser.add_argument("--record", type=Path, metavar="DIR", help="record the run in DIR/<run id>")
    parser.add_argument(
        "--flags",
        type=flags_from_text,
        help="what to trace from the first pass on: names with commas, or a JSON object of settings",
    )
    parser.add_argument("--no-perturb", action="store_true", help="do not let viewers perturb the model")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    parser.add_argument(
        "--dialect",
        choices=["inference"],
        help=(
            "also serve it to MegatronApp's front end, which brings no token, to pages and programs of this "
            "machine"
        ),
    )
    parser.add_argument(
        "--dialect-port",
        type=int,
        default=5000,
        help="port for --dialect (default: 5000, as that front end has it)",
    )
    parser.add_argument(
        "--dialect-host",
        default="127.0.0.1",
        help="address or name of this machine, if other machines are to have --dialect (default: loopback)",
    )
    parser.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    # torch is loaded only once a model is.
    from .serving import serve

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    lab = serve(
        arguments.model,
        name=arguments.name,
        flags=arguments.flags,
        record=arguments.record,
        perturb=not arguments.no_perturb,
        hub_host=arguments.host,
        hub_port=arguments.port,
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(closing(lab))
        if arguments.dialect:
            endpoint = (arguments.dialect_port, arguments.dialect_host)
            served = stack.enter_context(_serve_dialect(lab.tracer.run_id, *endpoint))
            print(f"MegatronApp's front end finds it at {served.address}.", flush=True)
        print(
            shown_text(f"{arguments.model.name} writes text as run {lab.tracer.run_id}. Ctrl-C ends it."),
            flush=True,
        )
        ended.wait()
    return 0


def _serve_dialect(run: str | None, port: int, host: str) -> ServedInference:
    """Serve a run in MegatronApp's dialect of inference."""
    from ...hub.dialects.dialect import DialectError
    from ...hub.dialects.inference_gateway import ServedInference
    from ...hub.discovery import find_hub

    entry = None if run is None else find_hub(run)
    if entry is None:
        raise DialectError("unreachable", "The run's hub could not be found.")
    return ServedInference(entry, port, host)
