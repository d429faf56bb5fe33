"""``megalens timeline``: traces of several ranks as one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from ..protocol import MegalensError, shown_text

__all__ = ["add_commands"]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``megalens``."""
    parser = commands.add_parser("timeline", help="put traces of several ranks together")
    kinds = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    parser = kinds.add_parser(
        "aggregate",
        help="the files that MegatronApp's tracer wrote, as one file of Chrome's events",
        description="Read benchmark-data-…json of every rank and write one file that chrome://tracing and Perfetto open.",
        epilog="Exit codes: 0 done, 2 a folder or a file that cannot be read or written.",
    )
    parser.add_argument("folder", metavar="DIR", help="the folder with one file for each rank")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where to write")
    parser.set_defaults(run=_aggregate)


def _aggregate(arguments: argparse.Namespace) -> int:
    from .megascan import aggregate
    from .megascan_files import TimelineError, read_rank_files

    def tell(sentence: str) -> None:
        print(f"megalens timeline: {shown_text(sentence, 600)}", file=sys.stderr)

    out = Path(arguments.output)
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        traces, problems = read_rank_files(Path(arguments.folder))
        events, more = aggregate(traces)
        for problem in (*problems, *more):
            tell(problem)
        try:
            with partial.open("w", encoding="utf-8") as file:
                json.dump(events, file, indent=2)
            os.replace(partial, out)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise TimelineError(f"{out} cannot be written: {error.strerror}.") from error
    except MegalensError as error:
        tell(str(error))
        return 2
    print(f"Wrote {len(events)} events of {len(traces)} ranks to {shown_text(str(out), 600)}")
    return 0
