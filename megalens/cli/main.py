"""The command line of Megalens."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from .._needed import NotInstalledError
from ..protocol import MegalensError, shown_text
from ..protocol.version import own_version
from ..slices import Commands, find_slices, load
from . import agents, compare, completion, dialects, doctor, hub, look, replay, runs, show, upload


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="megalens", description="See inside a transformer's training run.")
    parser.add_argument("--version", action="version", version=f"megalens {own_version()}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    adding: list[Commands] = [
        each.add_commands
        for each in (hub, look, runs, show, compare, dialects, replay, upload, agents, doctor)
    ]
    for add in [*adding, *(load(each.commands) for each in find_slices() if each.commands)]:
        add(commands)
    # The last one, since it has all the others in it.
    completion.add_commands(commands)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and not given[0].startswith("-") and given[0] not in commands.choices:
        nearest = get_close_matches(given[0], commands.choices, n=1)
        meant = f" Did you mean {nearest[0]}?" if nearest else " megalens --help lists them."
        parser.exit(2, shown_text(f"megalens: there is no command {given[0]!r:.100}.{meant}\n"))
    parsed = parser.parse_args(given)
    try:
        return int(parsed.run(parsed))
    except NotInstalledError as error:
        print(f"megalens: {error}", file=sys.stderr)
        return 1
    except MegalensError as error:
        print(shown_text(f"megalens {parsed.command}: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
