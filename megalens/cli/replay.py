"""The command line: ``megalens replay``."""

from __future__ import annotations

import argparse

from .hub import seconds

_EXIT_CODES = (
    "Exit codes: 0 done or Ctrl-C, 1 an error of Megalens itself, 2 wrong arguments or a run folder that "
    "cannot be read."
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "replay",
        help="serve a recorded run as if it were live",
        description=(
            "Serve a recorded run as if it were live: same rows, same order, same steps, by a hub of its own."
        ),
        epilog=_EXIT_CODES,
    )
    parser.add_argument("folder", metavar="RUN", help="the run folder")
    parser.add_argument(
        "--speed",
        type=_speed,
        default=1.0,
        metavar="N",
        help="how many times as fast as it was recorded; 0 or max is as fast as possible (default: 1)",
    )
    parser.add_argument(
        "--loop", action="store_true", help="begin again at the end; steps go on from the last"
    )
    parser.add_argument("--from", type=int, dest="first", metavar="STEP", help="begin at this step")
    parser.add_argument("--wait-for-viewer", action="store_true", help="begin when somebody watches")
    parser.add_argument(
        "--linger",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="end this long after the end, when nobody watches any more (default: 10)",
    )
    parser.set_defaults(run=_replay)


def _replay(arguments: argparse.Namespace) -> int:
    import asyncio

    from ..hub.replay import play

    options = {name: getattr(arguments, name) for name in ("loop", "first", "wait_for_viewer", "linger")}
    asyncio.run(play(arguments.folder, arguments.speed or None, **options))
    return 0


def _speed(text: str) -> float:
    value = 0.0 if text == "max" else float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError("expected a number from 0, or max")
    return value
