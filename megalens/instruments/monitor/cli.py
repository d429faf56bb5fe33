"""The command line: ``megalens check``."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...protocol import MegalensError, shown_text
from ...protocol.outside import parse_json
from .trainermon.cli import add_trainermon_commands

__all__ = ["add_commands"]

_EXIT_CODES = (
    "Exit codes: 0 healthy, 1 alarms of severity critical or warning, 2 a run or rules that cannot be read."
)
_EVERY_SECONDS = 0.5


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``megalens``."""
    parser = commands.add_parser(
        "check",
        help="judge a recorded run by rules",
        description="Judge the recorded statistics of a run by the rules of the monitor, and say what they find.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument("run_folder", metavar="RUN", help="the run folder, or a folder of raw moments")
    parser.add_argument(
        "--rules",
        metavar="FILE",
        help='JSON file of rule settings: {"rules": {"jump": {"on": true, "threshold": 12}}, "muted": [{"rule": "dead", "name": "*bias"}]}',
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a line: each alarm, then the summary"
    )
    parser.set_defaults(run=_check)
    add_trainermon_commands(commands)


def _check(arguments: argparse.Namespace) -> int:
    # The reader of runs takes a moment to import.
    from ...runs import open_run
    from .recorded import judge_run

    try:
        settings = None if arguments.rules is None else _settings(arguments.rules)
        with open_run(arguments.run_folder) as run:
            steps = serious = 0
            for _, alarms in judge_run(run, settings, _Progress()):
                steps += 1
                for alarm in alarms:
                    serious += alarm.severity != "note"
                    _say(alarm, arguments.json)
        if not steps:
            raise MegalensError(f"{arguments.run_folder} holds no statistics to judge.")
    except (MegalensError, OSError) as error:
        print(shown_text(f"megalens check: {error}"), file=sys.stderr)
        return 2
    summary = {"steps": steps, "alarms": serious}
    print(json.dumps(summary) if arguments.json else f"{steps} steps, {serious} alarms.")
    return 1 if serious else 0


def _settings(path: str) -> Any:
    try:
        return parse_json(Path(path).read_bytes())
    except ValueError as error:
        raise MegalensError(f"{path} must be a JSON file of rule settings: {str(error)[:200]}") from error


def _say(alarm: Any, as_json: bool) -> None:
    if as_json:
        told = {
            k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(alarm).items()
        }
        print(json.dumps(told))
        return
    where = "" if alarm.rank < 0 else f", rank {alarm.rank}"
    print(
        shown_text(
            f"step {alarm.step}{where}: {alarm.severity} {alarm.rule}, {alarm.direction}, {alarm.stat} {alarm.name}: {alarm.sentence}"
        )
    )


class _Progress:
    """Says on a terminal how far it is."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, done: int, total: int, what: str) -> None:
        """Take how much is done."""
        if sys.stderr.isatty() and time.monotonic() - self._told > _EVERY_SECONDS:
            self._told = time.monotonic()
            print(f"{what}: {done:,} of {total:,} steps", file=sys.stderr)
