"""The command line of Megalens."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence

from .._needed import NotInstalledError
from ..protocol import MegalensError, shown_text
from ..protocol.version import own_version
from ..slices import Commands, find_slices, load
from . import agents, compare, completion, dialects, doctor, hub, look, replay, runs, show, upload
from .parser import CommandParser, nearest

_EXAMPLES = """examples:
  megalens runs                                live runs
  megalens runs megalens-runs --search gpt     recordings in a folder
  megalens info megalens-runs/RUN --json       what a run is, for a script
  megalens show RUN                            panel and views in a browser
  megalens tail RUN                            loss and alarms in a terminal
  megalens digest RUN | less                   what happened, in words
  megalens report RUN -o run.html --views overview,scalars
  megalens doctor                              what belongs into a bug report

exit codes: 0 done; 1 an error of Megalens itself, or something that is not
well (check, doctor, timeline verdict); 2 wrong arguments, no such run, or a
file that cannot be read or written; 130 Ctrl-C. megalens COMMAND --help has
what is particular to a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser: ArgumentParser = CommandParser(
        prog="megalens",
        description="See inside a transformer's training run.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version(given))
    commands = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for each in (hub, look, runs, show, compare, dialects, replay, upload, agents, doctor):
        each.add_commands(commands)
    # To look for packages with slices takes as long as a short command.
    if not given or given[0] not in commands.choices:
        for slice_ in find_slices():
            if slice_.commands:
                add: Commands = load(slice_.commands)
                add(commands)
        # The last one, since it has all the others in it.
        completion.add_commands(commands)
    if given and not given[0].startswith("-") and given[0] not in commands.choices:
        meant = nearest(given[0], list(commands.choices)) or " megalens --help lists them."
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


def _version(given: Sequence[str]) -> str:
    """Return what ``--version`` prints, which is looked up for that alone."""
    return f"megalens {own_version()}" if any(each.startswith("--v") for each in given) else ""
