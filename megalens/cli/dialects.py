"""``megalens record``, ``megalens connect``, ``megalens serve-3606`` and ``megalens serve-inference``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..protocol import RUNS_FOLDER, parse_json, shown_text
from .hub import add_record_mode, count, seconds

if TYPE_CHECKING:
    from ..hub.dialects.dialect import Translation
    from ..protocol.messages_generated import Config

_NAMES = ("T1", "T2", "3606", "inference")
_EXIT_CODES = (
    "Exit codes: 0 done (the peer ended, --steps were there, or Ctrl-C; a recording is closed), 1 an error "
    "of Megalens itself, 2 wrong arguments or a folder that cannot be written, 3 the foreign hub cannot be "
    "reached or is none of these, 4 it refused."
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, words, run in (
        ("record", "record a foreign hub's run into a run folder", _record),
        ("connect", "make a foreign hub's run appear among the live runs", _connect),
    ):
        parser = commands.add_parser(
            name,
            help=words,
            description=(
                f"{words[0].upper()}{words[1:]}: Megatron-LM's tensor tracer or MegatronApp, as they are. "
                "Step numbers are inferred."
            ),
            epilog=_EXIT_CODES,
        )
        _add_arguments(parser)
        if name == "record":
            parser.add_argument(
                "--into",
                type=Path,
                default=Path(RUNS_FOLDER),
                metavar="DIR",
                help=f"record in DIR/<run id> (default: {RUNS_FOLDER})",
            )
            add_record_mode(parser)
        parser.set_defaults(run=run)
    for name, client, dialect in (
        ("serve-3606", "Megatron-LM's tensor tracer", "Megatron-LM's pull request 3606"),
        (
            "serve-inference",
            "MegatronApp's inference",
            "MegatronApp's inference hub: it can generate and perturb",
        ),
    ):
        serve = commands.add_parser(
            name,
            help=f"serve a live run to a client of {client}",
            description=(
                f"Serve a live run in the language of {dialect}, to pages of this machine and to programs. "
                "Clients bring no token."
            ),
            epilog=(
                "Exit codes: 0 done, 1 an error of Megalens itself, 2 wrong arguments or a port in use, 3 "
                "there is no such live run."
            ),
        )
        serve.add_argument(
            "target", metavar="RUN", nargs="?", help="name or id of the run (default: the newest)"
        )
        serve.add_argument("--port", type=int, default=5000, help="port to listen on (default: 5000)")
        if name == "serve-inference":
            serve.add_argument(
                "--host",
                default="127.0.0.1",
                help="address or name of this machine, if other machines are to have it (default: loopback)",
            )
        serve.set_defaults(run=_serve, command=name, host="127.0.0.1")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="URL", help="the foreign hub, such as ws://localhost:5000")
    parser.add_argument(
        "--dialect",
        type=_dialect,
        metavar="NAME",
        help=f"what it speaks: {', '.join(_NAMES)} (default: made out, where it answers a ping)",
    )
    parser.add_argument("--name", default=None, help="name of the run (default: the dialect and the address)")
    parser.add_argument(
        "--flag",
        action="append",
        metavar="NAME",
        help="ask for this flag only; may be given again (default: the usual ones)",
    )
    parser.add_argument("--tiles", type=count, help="tiles a position, where a flag is tiled")
    parser.add_argument("--reduction", help="one number a tile: mean, max, abs().mean(), … (default: mean)")
    parser.add_argument("--config", metavar="JSON", help="the whole configuration, instead of --flag")
    parser.add_argument(
        "--micro-batches",
        type=count,
        default=1,
        metavar="N",
        help="forward passes that make one step (default: 1)",
    )
    parser.add_argument("--steps", type=count, metavar="N", help="end after so many steps")
    parser.add_argument(
        "--wait",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long to try again when the peer cannot be reached (default: 10)",
    )
    parser.add_argument(
        "--prompt", action="append", default=[], metavar="TEXT", help="inference: generate from this"
    )
    parser.add_argument(
        "--tokens", type=count, default=10, help="inference: tokens to generate (default: 10)"
    )
    parser.add_argument(
        "--linger",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="connect: end this long after the last viewer left a finished run (default: 10)",
    )
    parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)


def _record(arguments: argparse.Namespace) -> int:
    return _run(arguments, arguments.into, arguments.record_mode)


def _connect(arguments: argparse.Namespace) -> int:
    return _run(arguments, None)


def _run(arguments: argparse.Namespace, record: Path | None, record_mode: int | None = None) -> int:
    import asyncio

    from ..hub.dialects.dialect import DialectError
    from ..hub.dialects.translator import follow
    from ..protocol import ProtocolError

    command = "connect" if record is None else "record"
    try:
        plan = _plan(arguments)
        asyncio.run(
            follow(
                plan,
                record=record,
                record_mode=record_mode,
                linger=arguments.linger,
                until_stdin_closes=arguments.until_stdin_closes,
            )
        )
    except ProtocolError as error:
        field = f" (at {error.field})" if error.field else ""
        print(shown_text(f"megalens {command}: {error}{field}"), file=sys.stderr)
        return 2
    except DialectError as error:
        print(shown_text(f"megalens {command}: {error.message}"), file=sys.stderr)
        return {"bad-parameter": 2, "refused": 4}.get(error.code, 3)
    return 0


def _plan(arguments: argparse.Namespace) -> Translation:
    from ..hub.dialects.dialect import DIALECTS, Translation
    from ..hub.dialects.peer_request import chosen_config
    from ..protocol import ProtocolError, check_message

    dialect = DIALECTS[arguments.dialect] if arguments.dialect else None
    config: Config | None = None
    if arguments.config is not None:
        try:
            config = parse_json(arguments.config)
        except ValueError as error:
            raise ProtocolError("bad-message", f"--config is not JSON: {error}", field="config") from error
        check_message({"type": "configured", "id": "-", "applied": False, "step": 0, "config": config})
    elif arguments.flag or arguments.tiles or arguments.reduction:
        if dialect is None:
            raise ProtocolError(
                "bad-parameter", "--flag, --tiles and --reduction need --dialect, which says what they mean."
            )
        config = chosen_config(dialect, arguments.flag, arguments.tiles, arguments.reduction)
    name = arguments.name or f"{arguments.dialect or 'foreign'} {arguments.address.partition('://')[2]}"
    return Translation(
        address=arguments.address,
        dialect=dialect,
        config=config,
        name=name[:200],
        micro_batches=arguments.micro_batches,
        wait_seconds=arguments.wait,
        most_steps=arguments.steps,
        prompts=tuple(arguments.prompt),
        tokens=arguments.tokens,
    )


def _serve(arguments: argparse.Namespace) -> int:
    import asyncio

    from ..hub.dialects.dialect import DialectError
    from ..hub.dialects.gateway import Gateway
    from ..hub.dialects.hub_gateway import address_of
    from ..hub.dialects.inference_gateway import InferenceGateway
    from ..hub.discovery import find_hub
    from ..hub.terminal import ask_to_stop

    command, host = arguments.command, arguments.host
    entry = find_hub(arguments.target)
    if entry is None:
        wanted = arguments.target or "any name"
        print(shown_text(f"megalens {command}: no live run of {wanted}. See megalens runs."), file=sys.stderr)
        return 3

    async def serve() -> None:
        gateway = (
            Gateway(entry, arguments.port)
            if command == "serve-3606"
            else InferenceGateway(entry, arguments.port, host=host)
        )
        await ask_to_stop(gateway.run(lambda port: print(address_of(host, port), flush=True)))
        if gateway.dropped:
            print(f"{gateway.dropped} updates were given up because a client was slow.", file=sys.stderr)

    try:
        asyncio.run(serve())
    except DialectError as error:
        print(shown_text(f"megalens {command}: {error.message}"), file=sys.stderr)
        return {"bad-parameter": 2}.get(error.code, 3)
    return 0


def _dialect(text: str) -> str:
    found = next((name for name in _NAMES if name.lower() == text.lower()), None)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(_NAMES)}")
    return found
