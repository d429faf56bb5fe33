"""The command line of Megalens."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ..instruments.generation.cli import add_commands as add_serve_command
from ..instruments.monitor.cli import add_commands as add_check_command
from ..instruments.monitor.trainermon.cli import add_commands as add_anomalies_command
from ..instruments.timeline.cli import add_commands as add_timeline_command
from ..protocol.version import own_version
from .dialects import add_commands as add_dialect_commands
from .hub import add_commands
from .replay import add_commands as add_replay_command

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``megalens`` with these arguments, the process's own when absent, and return the exit code."""
    parser = argparse.ArgumentParser(prog="megalens", description="See inside a transformer's training run.")
    parser.add_argument("--version", action="version", version=f"megalens {own_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_commands(commands)
    add_dialect_commands(commands)
    add_replay_command(commands)
    add_check_command(commands)
    add_anomalies_command(commands)
    add_timeline_command(commands, _open_run)
    add_serve_command(commands, _serve, _serve_dialect)
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))


def _open_run(folder: str) -> Any:
    # pyarrow is read only once a run is.
    from ..runs import open_run

    return open_run(folder)


def _serve(*model: Any, **options: Any) -> Any:
    # torch is loaded only once a model is.
    from ..instruments.generation.serving import serve

    return serve(*model, **options)


def _serve_dialect(run: str, port: int, host: str) -> Any:
    from ..hub.dialects.errors import DialectError
    from ..hub.dialects.served_inference import ServedInference
    from ..hub.discovery import find_hub

    entry = find_hub(run)
    if entry is None:
        raise DialectError("unreachable", "The run's hub could not be found.")
    return ServedInference(entry, port, host)
