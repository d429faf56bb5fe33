"""The command line of Megalens."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..protocol.version import own_version
from ..slices import Commands, find_slices, load
from . import dialects, export, hub, replay


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="megalens", description="See inside a transformer's training run.")
    parser.add_argument("--version", action="version", version=f"megalens {own_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    adding: list[Commands] = [each.add_commands for each in (hub, dialects, replay, export)]
    for add in [*adding, *(load(each.commands) for each in find_slices() if each.commands)]:
        add(commands)
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))
