"""The command line of Megalens."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from .dialects.cli import add_commands as add_dialect_commands
from .hub.cli import add_commands
from .replay.cli import add_commands as add_replay_command

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``megalens`` with these arguments, the process's own when absent, and return the exit code."""
    parser = argparse.ArgumentParser(prog="megalens", description="See inside a transformer's training run.")
    parser.add_argument("--version", action="version", version=f"megalens {_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_commands(commands)
    add_dialect_commands(commands)
    add_replay_command(commands)
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))


def _version() -> str:
    try:
        return version("megalens")
    except PackageNotFoundError:
        return "0+checkout"


if __name__ == "__main__":
    sys.exit(main())
